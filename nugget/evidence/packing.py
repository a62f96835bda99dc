"""The text of a bundle: what matters most first, never longer than asked for, and saying so where it was cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nugget.evidence.values import BundleOptions, EvidenceBundle
from nugget.text import shorten

TRUNCATED = "[… truncated]"
_LINE_CHARS = 400
_SHOWN_TAIL = 12


def pack(
    bundle: EvidenceBundle, latest: Mapping[str, Sequence[str]], options: BundleOptions, *, active: str = ""
) -> tuple[str, bool]:
    """The text for a model, and whether something was left out for lack of room.

    It opens with session, intent and question; then incidents, working notes and single pieces of evidence in the
    order of the profile, then the latest output.
    """
    lines = list(_lines(bundle, latest, active, room=options.max_chars))
    text = ""
    for number, line in enumerate(lines):
        joined = f"{text}\n{line}" if number else line
        if len(joined) > options.max_chars or number >= options.max_lines:
            return _cut(text, line, options, is_full=number >= options.max_lines), True
        text = joined
    return text, False


def _cut(text: str, line: str, options: BundleOptions, *, is_full: bool) -> str:
    """The text with as much of the next line as there is room for, and the mark that it was cut."""
    if options.max_lines < 1 or options.max_chars < 1:
        return ""
    room = options.max_chars - len(TRUNCATED) - 1
    if room <= 0:
        return (text or line)[: options.max_chars]
    if is_full:
        kept = text.split("\n")[: options.max_lines - 1]
        return "\n".join([*kept, TRUNCATED])[: options.max_chars]
    left = room - len(text) - 1
    if left > 24:
        return f"{text}\n{line[:left]}{TRUNCATED}" if text else f"{line[:left]}{TRUNCATED}"
    return f"{text[:room].rstrip()}\n{TRUNCATED}"


def _lines(bundle: EvidenceBundle, latest: Mapping[str, Sequence[str]], active: str, *, room: int) -> Iterator[str]:
    is_tight = room < 400
    head = [f"session: {bundle.session}" if bundle.session else "sessions: all of this workspace"]
    head += [f"intent: {bundle.intent}", f"query: {shorten(bundle.query, max(16, min(300, room // 6)))}"]
    yield from [" | ".join(head)] if is_tight else head
    if active and not is_tight:
        yield f"last active: {active}"
    for section in _ORDER[bundle.intent]:
        yield from _SECTIONS[section](bundle, latest)


def _incidents(bundle: EvidenceBundle, latest: Mapping[str, Sequence[str]]) -> Iterator[str]:
    if bundle.incidents:
        yield "incidents:"
    for one in bundle.incidents:
        where = f" [{one.session}]" if bundle.session is None else ""
        yield f"- {one.title}{where}"
        yield from (f"    {shorten(line, _LINE_CHARS)}" for line in one.summary)


def _notes(bundle: EvidenceBundle, latest: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Working notes, but for blockers that are told as incidents and edits that stand among the evidence."""
    told = {one.title for one in bundle.incidents}
    has_edits = bundle.intent == "what-changed"
    shown = [one for one in bundle.notes if one.text not in told and not (has_edits and one.type == "edit")]
    if shown:
        yield "working notes:"
    for one in shown:
        done = "" if one.is_open or one.type in ("edit", "decision") else " (done)"
        yield f"- {one.type}{done}: {shorten(one.text, _LINE_CHARS)}"


def _evidence(bundle: EvidenceBundle, latest: Mapping[str, Sequence[str]]) -> Iterator[str]:
    told = {line for one in bundle.incidents for line in one.summary}
    shown = [one for one in bundle.selected if one.kind != "incident" and not one.kind.startswith("note.")]
    noted = {one.text for one in bundle.notes} if bundle.intent != "what-changed" else set()
    shown = [one for one in shown if one.text not in told and f"Edited {one.text}" not in noted]
    if shown:
        yield "evidence:"
    for one in shown:
        yield f"- [{one.kind}] {shorten(one.text, _LINE_CHARS)}"


def _output(bundle: EvidenceBundle, latest: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for stream, lines in latest.items():
        if lines:
            yield f"latest {stream}:"
        yield from (f"    {shorten(line, _LINE_CHARS)}" for line in lines[-_SHOWN_TAIL:])


_SECTIONS = {"incidents": _incidents, "notes": _notes, "evidence": _evidence, "output": _output}
_ORDER = {
    "debug": ("incidents", "evidence", "output", "notes"),
    "resume": ("incidents", "notes", "evidence", "output"),
    "what-changed": ("evidence", "notes", "incidents"),
    "status": ("incidents", "notes", "evidence", "output"),
    "general": ("incidents", "evidence", "notes", "output"),
}
