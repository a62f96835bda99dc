"""Measure offline extraction on labelled sessions.

A unit says a gold item if its title and body hold a phrase of each of the item's `must` groups (the rules of
../shared/data/gold/score.py, which is used as it is). The shipped judge has seen all labelled sessions, so the figures
that count are those of its card (scripts/train_extraction.py). Intervals are 90 % bootstrap intervals over sessions.

Run: python benchmarks/knowledge.py [--units]
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import random
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from nugget.config import Settings
from nugget.extraction.offline import extract_offline
from nugget.models import Event, EventKind, Session, Speaker, SpeechOrigin
from nugget.redaction import redact_session
from nugget.sources.claude_code import read_session

_BESIDE = (parent / "shared" / "data" for parent in Path(__file__).resolve().parents)
SHARED = next((folder for folder in _BESIDE if folder.is_dir()), Path("shared/data"))
TRANSCRIPTS, SHARED_GOLD = SHARED / "transcripts", SHARED / "gold"
GOLD = Path(__file__).with_name("gold")
NOW = datetime(2026, 6, 1, tzinfo=UTC)
FIGURES = ("precision", "precision@1", "recall by worth", "title recall", "type agreement", "with faults")
_ROUNDS = 400
_QUOTE_CHARS = 200

Row = dict[str, Any]


@cache
def _scorer() -> Any:
    spec = importlib.util.spec_from_file_location("gold_score", SHARED_GOLD / "score.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def labels() -> tuple[list[Row], list[Row]]:
    """Return the gold items and labelled sentences of all labelled sessions."""
    read = _scorer().read
    return read(SHARED_GOLD / "gold.jsonl") + read(GOLD / "gold.jsonl"), read(SHARED_GOLD / "sentences.jsonl")


@cache
def _grades() -> dict[tuple[str, str], Row]:
    rows: list[Row] = _scorer().read(GOLD / "drafts.jsonl")
    return {(row["session"], row["quote"][:_QUOTE_CHARS]): row for row in rows}


def grade(session: str, quote: str) -> Row | None:
    """Return what a reader thought of the draft that rests on a quote: `worth` from 0 to 3, `type`; None if unread."""
    return _grades().get((session, quote[:_QUOTE_CHARS]))


@cache
def _split() -> Row:
    split: Row = json.loads((GOLD / "split.json").read_text("utf-8"))
    return split


def sessions() -> list[str]:
    """Return the labelled sessions, including those without knowledge."""
    gold, sentences = labels()
    return sorted({row["session"] for row in gold + sentences} | set(_split()["none"]))


def dialogues() -> list[Row]:
    """Return the written dialogues: `turns` (by the person and the agent in turn, or {kind: text}) and `keep`."""
    rows: list[Row] = _scorer().read(GOLD / "dialogues.jsonl")
    return rows


def statements() -> list[Row]:
    """Return what people type: `text`, whether to `keep` it, what any wording of it holds (`must`), and the `part`.

    The parts `a`, `b` and `c` were each written by one author who had seen nothing of this.
    """
    rows: list[Row] = _scorer().read(GOLD / "statements.jsonl")
    return rows


def heard(part: str) -> str:
    """Return how many statements of a part become right units, and how many of the moment become any."""
    counts = {True: [0, 0], False: [0, 0]}
    for number, one in enumerate(item for item in statements() if item["part"] == part):
        turns = ["Please add a settings page.", "Done, I added it.", one["text"], "You're right, I changed it."]
        row: Row = {"id": f"statement-{number}", "turns": [*turns, {"edit": "x", "path": "a.py"}]}
        session = Session(id=row["id"], agent="claude-code", path="", events=dialogue_events(row))
        units = [proposal.unit for proposal in extract_offline(session, now=NOW)]
        said = [unit for unit in units if unit.evidence[0].speaker is Speaker.USER]
        needs_words = one["keep"] and "must" in one
        is_hit = any(says(f"{unit.title} {unit.body}", one) for unit in said) if needs_words else bool(said)
        counts[one["keep"]][0] += is_hit
        counts[one["keep"]][1] += 1
    (right, kept), (wrong, passing) = counts[True], counts[False]
    return f"{right} of {kept} right, {wrong} of {passing} of the moment proposed"


_DIALOGUE_KINDS = {
    "user": (EventKind.PROMPT, Speaker.USER, SpeechOrigin.TYPED),
    "agent": (EventKind.REPLY, Speaker.AGENT, SpeechOrigin.WRITTEN),
    "plan": (EventKind.PROMPT, Speaker.AGENT, SpeechOrigin.PASTED),
    "paste": (EventKind.PASTE, Speaker.QUOTED, SpeechOrigin.PASTED),
    "quoted": (EventKind.PROMPT, Speaker.QUOTED, SpeechOrigin.PASTED),
    "summary": (EventKind.SUMMARY, Speaker.AGENT, SpeechOrigin.COMPACTION_SUMMARY),
    "run": (EventKind.COMMAND, Speaker.AGENT, SpeechOrigin.WRITTEN),
    "edit": (EventKind.FILE_EDIT, Speaker.AGENT, SpeechOrigin.WRITTEN),
    "output": (EventKind.OUTPUT, Speaker.TOOL, SpeechOrigin.TOOL_RESULT),
}


def dialogue_events(row: Row) -> tuple[Event, ...]:
    """Return a dialogue as the events of a session."""
    events = []
    for place, turn in enumerate(row["turns"]):
        said = {("user", "agent")[place % 2]: turn} if isinstance(turn, str) else turn
        name = next(iter(said))
        kind, speaker, origin = _DIALOGUE_KINDS[name]
        more: dict[str, Any] = {field: value for field, value in said.items() if field != name}
        uuid = f"{row['id']}-{place}"
        events.append(
            Event(kind=kind, text=said[name], speaker=speaker, origin=origin, uuid=uuid, timestamp=NOW, **more)
        )
    return tuple(events)


def is_dialogue_apart(row: Row) -> bool:
    """Return whether a dialogue is kept apart from training: every fifth by the hash of its id."""
    return int(hashlib.sha256(row["id"].encode()).hexdigest(), 16) % 5 == 0


def short_id(session: str) -> str:
    """Return the part of an id that tells sessions apart: several files are one session at different points."""
    name = session.rsplit("/", 1)[-1].removesuffix(".jsonl")
    return name.split("_")[1] if name[:2] == "20" else name


def is_apart(session: str) -> bool:
    """Return whether a session is kept apart from training."""
    return short_id(session) in _split()["apart"]


def says(text: str, item: Row) -> bool:
    """Return whether a text says a gold item."""
    return bool(_scorer().says(text, item))


def row(session: str, title: str, body: str, kind: str, confidence: float, quote: str) -> Row:
    """Return a unit as the scorer reads it, with its evidence."""
    made = {"session": session, "title": title, "body": body, "type": str(kind), "confidence": confidence}
    return made | {"quote": quote}


def scored(names: Sequence[str], units: Sequence[Row]) -> Row:
    """Return the figures of some sessions."""
    gold = [item for item in labels()[0] if item["session"] in names]
    overall: Row = _scorer().score_units(gold, names, units)["overall"]
    worths = [found["worth"] for unit in units if (found := grade(unit["session"], unit["quote"]))]
    if worths:
        overall |= {"mean worth": round(sum(worths) / len(worths), 2)}
        overall |= {"worth keeping": round(sum(worth >= 2 for worth in worths) / len(worths), 2)}
    return overall


def line(figures: Row, names: Sequence[str], units: Sequence[Row]) -> str:
    """Return the figures with their intervals on one line."""
    chance = random.Random(7)
    spread: dict[str, list[float]] = {name: [] for name in FIGURES}
    gold = {name: [item for item in labels()[0] if item["session"] == name] for name in names}
    counts = {
        name: _scorer().figures(gold[name], [u for u in units if u["session"] == name])["count"] for name in names
    }
    for _ in range(_ROUNDS):
        total = sum((counts[chance.choice(names)] for _ in names), start=type(next(iter(counts.values())))())
        made = _scorer().rates(total)
        for name in FIGURES:
            if made[name] is not None:
                spread[name].append(made[name])
    parts = [f"{figures['units']} units, {figures['gold']} gold"]
    parts += [f"{name} {figures[name]}" for name in ("mean worth", "worth keeping") if name in figures]
    for name in FIGURES:
        low, high = np.quantile(spread[name], (0.05, 0.95)) if spread[name] else (0, 0)
        parts.append(f"{name} {figures[name]} ({low:.2f} to {high:.2f})")
    return "; ".join(parts)


def propose(session: str) -> list[Row]:
    """Return the units that extraction proposes from a session."""
    redacted, _ = redact_session(read_session(TRANSCRIPTS / session), settings=Settings())
    made = extract_offline(redacted, now=NOW)
    return [
        row(session, one.title, one.body, one.type, one.confidence, one.evidence[0].quote)
        for one in (proposal.unit for proposal in made)
    ]


def confidence(names: Sequence[str], units: Sequence[Row]) -> None:
    """Print how often units of three ranges of confidence say a gold item."""
    gold = labels()[0]
    for low, high in ((0.0, 0.6), (0.6, 0.75), (0.75, 1.01)):
        some = [u for u in units if low <= u["confidence"] < high]
        hits = [any(g["session"] == u["session"] and says(f"{u['title']} {u['body']}", g) for g in gold) for u in some]
        if some:
            mean = sum(u["confidence"] for u in some) / len(some)
            right = sum(hits) / len(hits)
            print(f"confidence {low:.2f} to {high:.2f}: {len(some)} units, mean {mean:.2f}, right {right:.2f}")


def card() -> Row:
    """Return the card of the shipped judge, whose figures are of models that had not seen the sessions."""
    stored: Row = json.loads((files("nugget.extraction") / "judge.json").read_text("utf-8"))["card"]
    return stored


def speed() -> None:
    """Print how long the largest session takes, from the file to the units."""
    largest = max((TRANSCRIPTS / "claude-code").glob("*.jsonl"), key=lambda file: file.stat().st_size)
    cpu = time.process_time()
    made = propose(f"claude-code/{largest.name}")
    print(f"{largest.stat().st_size / 1e6:.1f} MB: {len(made)} units in {time.process_time() - cpu:.1f} s of processor")


def main() -> None:
    """Print all."""
    if not SHARED_GOLD.is_dir():
        print("no labelled sessions here")
        return
    names = sessions()
    units = [unit for name in names for unit in propose(name)]
    for part in ("leave-one-session-out", "kept apart"):
        print(f"{part} (by the card):", ", ".join(f"{name} {card()[part][name]}" for name in ("units", *FIGURES)))
    print("as shipped, on the sessions it was trained on:", line(scored(names, units), names, units))
    for part in dict.fromkeys(item["part"] for item in statements()):
        print(f"statements of people, {part}: {heard(part)}")
    if "--units" in sys.argv:
        for unit in units:
            print(f"{unit['confidence']:.2f} {unit['type']:9}{unit['title']}")
    speed()


if __name__ == "__main__":
    main()
