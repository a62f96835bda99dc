"""What tests of importing share: notes as people keep them, and an import of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from sessions import nothing_similar

from nugget.capture.compare import ProposalTarget
from nugget.config import Settings
from nugget.importing import ImportResult, import_notes

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
NYGARD = """\
# 2. Implement as shell scripts

Date: 12/02/2016

## Status

Accepted

## Context

The tool needs to create new files and apply small edits to existing files.

## Decision

The tool is implemented as shell scripts that use standard Unix tools.

## Consequences

The tool won't support Windows.
"""
RULES = """\
# CLAUDE.md

This file provides guidance to Claude Code when it works with code here.

## Testing
- Run `make test` before each push; it runs everything that CI runs.
- A bug gets its test first.

## Database

### Migrations
- Never run migrations at start-up: two replicas that start at once would deadlock.

### Queries
- Every query of a request handler goes through the repository classes.

@docs/more.md
"""
VAULT = """\
---
tags: [go, bug]
created: 2025-04-03
aliases: [leak]
---
A goroutine that waits on a channel without looking at [[Contexts|the context]] never ends.
See ![[diagram.png]] and [[Goroutines]]; the way out is a select. #concurrency
"""


def bring_in(path: Path, brain: Path, home: Path, **changes: object) -> ImportResult:
    bound = {"settings": Settings(), "similar": nothing_similar, "now": NOW} | changes
    return import_notes(path, ProposalTarget(brain=brain.resolve(), home=home, **bound))  # type: ignore[arg-type]
