"""The console entry point; it imports only the standard library until the command is known.

Hook calls are answered without importing typer. An unexpected exception ends here, with one line on stderr, the
details in a log file that can be pasted into a report, and exit code 3.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

UNEXPECTED = 3
INTERRUPTED = 130


def console() -> NoReturn:
    """Run the `nugget` command and exit with its code; streams that the caller has closed lead nowhere."""
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, name, getattr(sys, name) or os.fdopen(os.open(os.devnull, os.O_RDWR), "r+"))
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # a second Ctrl-C, or one before `main` could catch it
        sys.exit(INTERRUPTED)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `nugget <arguments>` (default: the process's own command line) and return its exit code."""
    # Set before numpy is imported: its threads take 50 ms to start, and Nugget multiplies no large matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given[:1] == ["capture-session"]:
            from nugget import hooks

            if hooks.is_hook_call(given):
                return hooks.main(given)
        if given[:2] == ["commit", "--hook"] and given[2:]:
            from nugget import hooks

            return hooks.prepare_commit_message(*given[2:])
        if given[:1] == ["serve"]:
            from nugget.hooks import home_folder
            from nugget.infra import resident

            if (code := resident.forward(home_folder(), given[1:])) is not None:
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
        is_stopped = isinstance(error.__cause__, KeyboardInterrupt)  # while a module in C was loaded
        return INTERRUPTED if is_stopped else _unexpected(error)


def _reader_left() -> int:
    """Discard the rest of the output, since the reader (such as `| head`) has closed the pipe; return 0."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def _unexpected(error: Exception) -> int:
    try:
        where = f"Details are in {_write_log(error)}"
    except Exception as failure:  # the last line of defence must not raise
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
