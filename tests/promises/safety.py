"""Promises about limits, faults and who may read what."""

from __future__ import annotations

PROMISES: dict[str, str] = {
    "FILES-PRIVATE": "what Nugget keeps is readable by its owner alone under any umask; doctor names wider modes",
}
GAPS: dict[str, str] = {}
