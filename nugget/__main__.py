"""The console entry: standard library only, until it is known what is wanted.

A hook call is answered before typer is imported. What nobody foresaw ends here: one line on stderr, the details in
a log file that can be pasted into a report, exit code 3.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

UNEXPECTED = 3
INTERRUPTED = 130

_OBJECTS_BETWEEN_COLLECTIONS = 50_000
"""Importing makes tens of thousands of objects that stay: looking through them for garbage is a tenth of a start."""


def console() -> NoReturn:
    """The `nugget` command: run it, and leave without taking the interpreter apart, which is a sixth of a question.

    Nothing is left for that: files and indexes are closed where they are opened, and no thread has work to finish.
    """
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, 10, 10)
    try:
        code = main()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except KeyboardInterrupt:  # a second one, or one before `main` was ready for it
        code = INTERRUPTED
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # `nugget.cli.run` has told what it could not print
            stream.flush()
    os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `nugget <arguments>` (default: the process's own command line) and return its exit code."""
    # Before numpy is imported: starting its threads costs 50 ms, and nothing here multiplies large matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _stand_in_for_closed_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given[:1] == ["capture-session"]:
            from nugget.hooks import session as hook

            if hook.is_hook_call(given):
                return hook.main(given)
        if given[:2] == ["commit", "--hook"]:
            from nugget.hooks import commit as commit_hook

            return commit_hook.main(given)
        if given[:1] == ["serve"] and (code := _serve_by_resident(given[1:])) is not None:
            return code
        from nugget.cli import run

        return run(given)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return _reader_left()
    except SystemExit as leaving:
        if isinstance(leaving.__context__, BrokenPipeError):
            return _reader_left()
        raise
    except Exception as error:
        return _unexpected(error)


def _serve_by_resident(arguments: Sequence[str]) -> int | None:
    """Run `nugget serve` by the resident server; None if this process has to serve itself."""
    from nugget.hooks.session import home_folder
    from nugget.infra import resident

    return resident.forward(home_folder(), arguments)


def _stand_in_for_closed_streams() -> None:
    """Nobody hears what is printed where the caller closed a stream (`>&-`), and no file takes its number."""
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def _reader_left() -> int:
    """Whoever read our output (`| head`) has enough; nothing failed, and nothing more can be said."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def _unexpected(error: Exception) -> int:
    try:
        where = f"Details are in {_write_log(error)}"
    except Exception as failure:  # this is the last line of defence: whatever it is, it ends in a sentence
        where = f"The details could not be written ({failure})"
    print(f"Error: something unexpected went wrong ({type(error).__name__}). {where}.", file=sys.stderr)
    return UNEXPECTED


def _write_log(error: Exception) -> str:
    """Write the redacted traceback under `$NUGGET_HOME/log` and return the file's path."""
    import platform
    import traceback
    from datetime import UTC, datetime

    from nugget import __version__
    from nugget.config import read_environment
    from nugget.infra import files
    from nugget.redaction import redact

    moment = datetime.now(UTC)
    told = [
        f"nugget {__version__}, Python {platform.python_version()}, {platform.platform()}",
        moment.isoformat(timespec="seconds"),
        *traceback.format_exception(error),
    ]
    file = read_environment().home / "log" / f"error-{moment:%Y%m%d-%H%M%S}-{os.getpid()}.log"
    with files.open_private(file, "w") as log:
        log.write(redact("\n".join(told)).text)
    return str(file)


if __name__ == "__main__":
    console()
