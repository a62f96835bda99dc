"""A knowledge file to begin with, and the unit or the one problem that is read from a text."""

from __future__ import annotations

from nugget.brain.knowledge_file import parse
from nugget.models import Unit

PATH = "domains/coding/patterns/retry-with-idempotency.md"
CONTRACT = """\
---
id: pattern/retry-with-idempotency        # <type>/<slug>, unique in the brain
type: pattern                             # pattern | concept | decision | bug | belief
domain: coding
tags: [stripe, payments, reliability]
confidence: 0.9                           # 0.0 - 1.0
source: ai-session                        # ai-session | manual | imported
related:
  - id: concept/idempotency-keys
    relation: uses                        # uses | implements | requires_understanding_of
created: 2026-02-24
last_modified: 2026-02-25
# optional: scope {repo, path, symbol}, session, evidence, stale_after, alternatives; unknown keys are kept
---
# Retry with Idempotency Keys

Body in markdown.
"""


def file(body: str = "# Title\n\nText.\n", **keys: str) -> str:
    """A valid file with the YAML of some keys replaced (`_` takes a key away)."""
    lines = {"id": "pattern/retry", "type": "pattern", "domain": "coding"} | keys
    return "---\n" + "".join(f"{key}: {value}\n" for key, value in lines.items() if value != "_") + f"---\n{body}"


def unit_of(text: str, path: str = "domains/coding/patterns/retry.md") -> Unit:
    parsed = parse(text, path=path)
    assert parsed.unit is not None, parsed.problems
    return parsed.unit
