"""How good heuristic extraction is on real sessions: learnings covered, junk, and speed.

Eight sessions come with learnings that were written down by others (claude-code-summaries.jsonl). A learning is
covered when the title or a paragraph of a unit of that session is near to it: cosine of all-MiniLM-L6-v2 at or
above a threshold. The threshold is justified by the null column: how many learnings come as near to the units of
another session of the same project, where a match can only be chance. Junk was judged by reading
(benchmarks/extraction_judged.json: session -> head of the quote -> whether the unit is worth a reviewer's time).

Run: python benchmarks/extraction.py [--no-model] [--show] [--unjudged]
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from nugget.config import Settings, load_settings, read_environment
from nugget.extraction.heuristic import extract_heuristic
from nugget.extraction.proposals import Proposal
from nugget.infra.embedding import open_embedder
from nugget.models import Unit
from nugget.redaction import redact_session
from nugget.sources.claude_code import read_session

TRANSCRIPTS = Path(__file__).resolve().parents[2] / "shared" / "data" / "transcripts"
JUDGED = Path(__file__).with_name("extraction_judged.json")
THRESHOLDS = (0.55, 0.6, 0.65)
NOW = datetime(2026, 6, 1, tzinfo=UTC)

Embed = Callable[[Sequence[str]], Any]


def model() -> Embed:
    """The bundled model, as (texts) -> matrix of unit vectors."""
    environment = read_environment()
    embedder = open_embedder(load_settings(environment), environment)
    assert embedder is not None
    return lambda texts: np.stack(list(embedder.embed(texts)))


def paragraphs(unit: Unit) -> list[str]:
    """What retrieval can match of a unit: its title, and the paragraphs and list items of its body."""
    blocks = re.split(r"\n\s*\n|\n(?=- )", unit.body)
    return [unit.title, *(block for block in blocks if len(block) > 20 and not block.startswith(("Came up", "```")))]


def summarised() -> Iterator[tuple[str, list[str]]]:
    """(transcript, its learnings)."""
    for line in (TRANSCRIPTS / "claude-code-summaries.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        learnings = row["summary"]["learnings"]
        findings = [code["finding"] for code in learnings["code"]]
        yield row["transcript"], [*learnings["repo"], *findings, *learnings["workflow"]]


def propose(name: str, embed: Embed | None) -> list[Proposal]:
    """The units of one transcript below TRANSCRIPTS, redacted as capture does it."""
    session, _ = redact_session(read_session(TRANSCRIPTS / name), settings=Settings())
    return extract_heuristic(session, embed=embed, now=NOW)


def coverage(embed: Embed, used: Embed | None) -> dict[float, float]:
    """Print the share of learnings covered, beside chance; returns the share by threshold."""
    rows = list(summarised())
    proposals = [propose(f"claude-code/{name}", used) for name, _ in rows]
    units = [embed([text for one in made for text in paragraphs(one.unit)]) for made in proposals]
    own, chance = [], []
    for number, (_, learnings) in enumerate(rows):
        wanted = embed(learnings)
        own.append((wanted @ units[number].T).max(axis=1))
        chance += [(wanted @ other.T).max(axis=1) for place, other in enumerate(units) if place != number]
    best, null = np.concatenate(own), np.concatenate(chance)
    count = sum(map(len, proposals))
    print(f"{len(rows)} sessions, {len(best)} learnings, {count} units")
    print("cosine at least   learnings covered   by chance (another session)")
    for threshold in THRESHOLDS:
        print(f"{threshold:15.2f}   {(best >= threshold).mean():17.1%}   {(null >= threshold).mean():9.1%}")
    return {threshold: float((best >= threshold).mean()) for threshold in THRESHOLDS}


def junk(used: Embed | None, *, show: bool = False, unjudged: bool = False) -> float:
    """Print and return the share of units that a reader judged to be junk."""
    judged: dict[str, dict[str, bool]] = json.loads(JUDGED.read_text("utf-8")) if JUDGED.is_file() else {}
    worth = bad = unknown = 0
    for number, name in enumerate(JUDGED_SESSIONS):
        if number == _SUMMARISED:
            print(f"junk in the {number} sessions with learnings: {bad} of {worth + bad}")
        for proposal in propose(name, used):
            verdict = judged.get(name, {}).get(proposal.unit.evidence[0].quote[:80])
            worth, bad, unknown = worth + (verdict is True), bad + (verdict is False), unknown + (verdict is None)
            if show or (unjudged and verdict is None):
                mark = {True: "+", False: "-", None: "?"}[verdict]
                print(f"{mark} {name}\t{proposal.unit.confidence:.2f}\t{proposal.unit.type}\t{proposal.unit.title}")
    read = worth + bad
    print(f"{read} units of {len(JUDGED_SESSIONS)} sessions judged by reading, {unknown} not judged")
    share = bad / max(1, read)
    print(f"junk in all: {bad} of {read} ({share:.0%})")
    return share


_NAMES = [f"claude-code/{name}" for name, _ in summarised()]
_SUMMARISED = len(_NAMES)
JUDGED_SESSIONS = (
    *_NAMES,
    "claude-code/2026-01-16_cde341db_9fd2fc39aa5f.jsonl",
    "claude-code/2026-01-19_86cc3044_5ac45bc32212.jsonl",
    "claude-code/2026-01-22_48f428f9_37995ebed6e4.jsonl",
    "claude-code/2026-01-27_3b1b6293_523d2b8bfaf3.jsonl",
    "claude-code/2026-01-28_cc432c40_ba59c426c910.jsonl",
    "claude-code/2026-01-31_a318ad73_1e868c83dbb7.jsonl",
    "claude-code/many-summaries_c070516b3fa9.jsonl",
    "episodic-memory/large-conversation.jsonl",
    "episodic-memory/long-conversation.jsonl",
)


def speed(used: Embed | None) -> None:
    """Print how long the largest session takes, from the file to the units."""
    largest = max((TRANSCRIPTS / "claude-code").glob("*.jsonl"), key=lambda file: file.stat().st_size)
    begin, cpu = time.perf_counter(), time.process_time()
    made = propose(f"claude-code/{largest.name}", used)
    taken, cpu = time.perf_counter() - begin, time.process_time() - cpu
    size = largest.stat().st_size / 1e6
    print(f"{size:.1f} MB session: {len(made)} units in {taken:.1f} s ({cpu:.1f} s of processor)")


def main() -> None:
    """Print all."""
    embed = model()
    used = None if "--no-model" in sys.argv else embed
    embed(["warm"])
    coverage(embed, used)
    junk(used, show="--show" in sys.argv, unjudged="--unjudged" in sys.argv)
    speed(used)


if __name__ == "__main__":
    main()
