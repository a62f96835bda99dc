"""Promises about limits, faults and who may read what."""

from __future__ import annotations

PROMISES: dict[str, str] = {
    "FILES-PRIVATE": "what Nugget keeps is readable by its owner alone under any umask; doctor names wider modes",
    "LIMIT-FILE": "at most 2,000 passages, relations and links of a file are indexed; sync and lint name the rest",
    "GIT-NO-PROGRAMS": "no command runs a program that a folder's git configuration, hooks or attributes name",
}
GAPS: dict[str, str] = {}
