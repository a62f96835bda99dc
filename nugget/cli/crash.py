"""The log of what nobody foresaw: a file that can be pasted into a report, with nothing secret in it."""

from __future__ import annotations

import os
import platform
import traceback
from datetime import UTC, datetime
from pathlib import Path

from nugget import __version__
from nugget.config import read_environment


def write_log(error: BaseException) -> Path:
    """Write the redacted traceback under `$NUGGET_HOME/log` and return the file. Raises OSError."""
    from nugget.redaction import redact

    moment = datetime.now(UTC)
    folder = read_environment().home / "log"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = folder / f"error-{moment:%Y%m%d-%H%M%S}-{os.getpid()}.log"
    lines = [
        f"nugget {__version__}, Python {platform.python_version()}, {platform.platform()}",
        moment.isoformat(timespec="seconds"),
        "",
        "".join(traceback.format_exception(error)),
    ]
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as log:
        log.write(redact("\n".join(lines)).text)
    return file
