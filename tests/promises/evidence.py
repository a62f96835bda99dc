"""Promises about what happened in sessions and shells: logs, incidents, working notes, bundles."""

from __future__ import annotations

PROMISES: dict[str, str] = {
    "EVI-SHELL-INCREMENTAL": "shell logs are read on from where the last reading ended, and never twice",
    "EVI-SHELL-ROTATED": "a log that was rotated, cut or written anew is read from its beginning",
    "EVI-SHELL-TORN": "torn last lines wait for their end; malformed lines are counted and stop nothing",
    "EVI-SHELL-TERMINAL": "of escape codes, progress bars and binary output only what a person could read is kept",
    "EVI-SHELL-BOUNDED": "of large output beginning, end and what looks like failures are kept, in little memory",
    "EVI-SHELL-PATHS": "no session id and no link leads out of the log folder; pipes are not read",
}
GAPS: dict[str, str] = {}
