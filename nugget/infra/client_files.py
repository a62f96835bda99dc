"""Settings files of other programs: read as they are, written only if they still are what was read.

A symbolic link is followed, never replaced; the mode of the file stays; a write is there whole or not at all.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from nugget.errors import ConflictError, InstallError
from nugget.infra import files

MAX_BYTES = 64_000_000


def read(path: Path) -> str | None:
    """Return the text of a file, line ends as they are; None if there is no such file. Raises InstallError."""
    try:
        if path.exists() and not path.is_file():
            raise InstallError(f"{path} is not a file.")
        if path.stat().st_size > MAX_BYTES:
            raise InstallError(f"{path} is larger than {MAX_BYTES // 1_000_000} MB.")
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise InstallError(f"{path} is not UTF-8 text (byte {error.start}); it was left alone.") from error
    except OSError as error:
        raise InstallError(f"{path} cannot be read: {error.strerror or error}.") from error


def write(path: Path, text: str | None, *, expected: str | None, mode: int = 0o600) -> None:
    """Make `text` the content of a file that still holds `expected`; None stands for no file.

    `mode` is for a new file. Raises ConflictError if the file changed meanwhile, InstallError if it cannot be
    written; in both cases it is as it was.
    """
    target = path.resolve()
    try:
        if text is None:
            _check_unchanged(path, expected)
            target.unlink(missing_ok=True)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            if not os.access(target, os.W_OK):
                raise InstallError(f"{path} is read-only; it was left alone.", hint=f"Make {target} writable.")
            mode = stat.S_IMODE(target.stat().st_mode)
        content = text.encode("utf-8")
        files.replace(target, content, mode=mode, check=lambda: _check_unchanged(path, expected))
    except OSError as error:
        raise InstallError(f"{path} cannot be written: {error.strerror or error}.") from error


def _check_unchanged(path: Path, expected: str | None) -> None:
    if read(path) != expected:
        raise ConflictError(f"{path} changed since it was read; nothing was written.", hint="Run the command again.")
