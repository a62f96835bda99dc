"""Check the reply of a model piece by piece: nothing of it is trusted, and each unit stands on its own.

A unit is taken when it is well formed, in the language of the session, and carries a quote that stands word for
word in what the model was shown. Whatever it names - a domain, a related unit - is reduced to what may be named.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nugget.extraction.claims import words_of
from nugget.extraction.phrases import rejected_in
from nugget.extraction.proposals import Proposal
from nugget.infra.llm.gate import problems_in
from nugget.models import (
    Event,
    EventKind,
    Evidence,
    KnowledgeType,
    Origin,
    Relation,
    RelationType,
    Session,
    SourceName,
    Speaker,
    SpeechOrigin,
    Unit,
)
from nugget.models.sessions import is_own_words
from nugget.redaction import redact
from nugget.sources.speakers import said_in
from nugget.text import shorten, slugify, title_slug

UPDATES = "updates"
"""The relation by which a model says that a unit belongs into the file of an existing one."""

MAX_QUOTE_CHARS = 600
MIN_QUOTE_CHARS = 15

_RULES = (KnowledgeType.BELIEF, KnowledgeType.DECISION, KnowledgeType.PATTERN)
_MAX_BODY_CHARS = 8000
_MAX_READ = 40
_FOREIGN_SCRIPT_SHARE, _KNOWN_SCRIPT_SHARE = 0.5, 0.01
_LETTERS_SAMPLED = 50_000
_LINE_MARK = re.compile(r"\A(?:USER|PASTED BY USER|AGENT(?: \([^)]*\))?|SUMMARY): |\A[$+-] ")
# Comments, controls, and invisible or direction-changing characters, by which a text can read differently to a reviewer
# and to a model.
_INVISIBLE = re.compile(
    "<!--.*?(?:-->|\\Z)|[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff"
    "\U000e0000-\U000e007f]",
    re.DOTALL,
)

_TEXT = {"type": "string"}
UNIT_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["type", "title", "domain", "tags", "confidence", "body", "quotes", "reason", "alternatives",
                 "relations"],
    "properties": {
        "type": {"type": "string", "enum": [kind.value for kind in KnowledgeType]},
        "title": {"type": "string", "minLength": 4, "maxLength": 300},
        "domain": {"type": "string", "maxLength": 200},
        "tags": {"type": "array", "items": _TEXT},
        "confidence": {"type": "number", "description": "0 to 1"},
        "body": {"type": "string", "minLength": 40, "maxLength": _MAX_BODY_CHARS},
        "quotes": {"type": "array", "items": _TEXT, "minItems": 1},
        "reason": _TEXT,
        "alternatives": {"type": "array", "items": _TEXT},
        "relations": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["number", "relation"],
                "properties": {
                    "number": {"type": "integer", "description": "the number of an existing unit"},
                    "relation": {"type": "string", "enum": [UPDATES, *(kind.value for kind in RelationType)]},
                },
            },
        },
    },
}  # fmt: skip
WINDOW_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["summary", "units"],
    "properties": {"summary": _TEXT, "units": {"type": "array", "items": UNIT_SCHEMA}},
}


UNSUPPORTED = 0.79
"""Most confidence in a unit whose title is mostly in other words than its quotes."""
_SUPPORTED, _SAME_CLAIM = 0.5, 0.6
"""Share of a claim's words from which a quote supports it, and from which both are about the same."""
_STEM_CHARS = 4
_NOT = re.compile(
    r"\b(?:not|no|never|without|avoid|cannot|stop|instead|rather|nicht|kein\w*|nie|niemals|ohne|statt|ne|pas|jamais"
    r"|sans|nunca|sin)\b|n['’]t\b|ない|ません|不|没|別に|禁止",
    re.IGNORECASE,
)
_NAME = re.compile(r"`([^`\n]+)`|(?<=\s)([A-Z][\w.+#-]{2,})|\b(\w*\d[\w.]*\w|\w+_\w+|[a-z]+[A-Z]\w+)\b")
_COUNTS = frozenset("two three four five six seven eight nine ten twelve twenty thirty forty fifty hundred".split())
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|(?<=。)|\n\s*\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTexts:
    """Texts in a prompt: a window of the session, and the existing units by their numbers (from 1)."""

    text: str
    existing: Sequence[Unit] = ()


def read_units(
    value: object, shown: PromptTexts, session: Session, *, allow: Sequence[re.Pattern[str]] = (), now: datetime
) -> Iterator[Proposal | str]:
    """Yield the proposal, or why there is none, for each unit of a reply. `value` may be anything at all."""
    for entry in well_formed(value, "unit", UNIT_SCHEMA):
        yield entry if isinstance(entry, str) else _proposal(entry, shown, session, allow=allow, now=now)


def well_formed(value: object, kind: str, schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any] | str]:
    """Yield each entry of a reply's list of a kind that holds the schema; for others its name and what is wrong."""
    listed = value.get(f"{kind}s") if isinstance(value, dict) else None
    entries = listed if isinstance(listed, list) else []
    for entry in entries[:_MAX_READ]:
        if problems := problems_in(entry, schema, where=kind):
            names = (entry.get(key) for key in ("title", "summary")) if isinstance(entry, dict) else ()
            name = next((name for name in names if isinstance(name, str) and name.strip()), f"a {kind} without a title")
            yield f"{shorten(name, 80)}: {shorten('; '.join(problems), 200)}"
        else:
            yield entry
    if len(entries) > _MAX_READ:
        yield f"{len(entries) - _MAX_READ} more {kind}s in one reply, which were not read"


def cleaned(text: str, allow: Sequence[re.Pattern[str]]) -> str:
    """Return a text without secrets, comments, control characters, and characters that cannot be seen."""
    shown = _INVISIBLE.sub("", text).encode("utf-8", "replace").decode()
    return redact(shown, allow=allow).text.strip()


def proved(
    claim: str, body: str, quotes: Sequence[str], shown: PromptTexts, session: Session, *, is_rule: bool
) -> tuple[tuple[Evidence, ...], float] | str:
    """Return the evidence of a claim and how far it supports it (0 to 1), or why the claim is dropped."""
    if not claim or not body:
        return "nothing is left of it without comments and invisible characters"
    found = [find_quote(quote, shown, session) for quote in quotes[:5]]
    evidence = tuple(dict.fromkeys(one for one in found if one is not None))
    if not evidence:
        return "its quote is not in the session"
    if is_foreign(f"{claim}\n{body}", session):
        return "not in the language of the session"
    if is_rule and not is_own_words(evidence):
        return "rests only on what was printed, pasted or quoted"
    support = support_of(claim, body, evidence, shown)
    return "its quotes do not say it" if support is None else (evidence, support)


def find_quote(quote: str, shown: PromptTexts, session: Session) -> Evidence | None:
    """Return the evidence for a quote: the characters that it stands for, and the records that hold them.

    Spacing may differ, nothing else: the passage is found by its words. None where it is not in what was shown.
    """
    words = _LINE_MARK.sub("", html.unescape(quote).strip()).split()
    if len(quote) > 2 * MAX_QUOTE_CHARS or len(" ".join(words)) < MIN_QUOTE_CHARS:
        return None
    pattern = re.compile(r"\s+".join(map(re.escape, words)))
    seen = pattern.search(shown.text)
    if seen is None or len(seen[0]) > 2 * MAX_QUOTE_CHARS:
        return None
    for event in session.events:
        for said in filter(None, (event.text, event.after, event.before)):
            if found := pattern.search(said):
                speaker, origin = _said_by(event, said, found)
                return Evidence(
                    session=session.id, quote=found[0], records=(event.uuid,) if event.uuid else (), speaker=speaker,
                    origin=origin,
                )  # fmt: skip
    return Evidence(session=session.id, quote=seen[0])


def script_of(text: str) -> Counter[str]:
    """Count the letters of each script (`LATIN`, `CYRILLIC`, `CJK`, `HANGUL`...) at the start of a text."""
    letters = [char for char in text[:_LETTERS_SAMPLED] if char.isalpha()]
    return Counter(unicodedata.name(char, "UNKNOWN").split(" ")[0].split("-")[0] for char in letters)


def _proposal(
    entry: Mapping[str, Any], shown: PromptTexts, session: Session, *, allow: Sequence[re.Pattern[str]], now: datetime
) -> Proposal | str:
    title, body = " ".join(cleaned(entry["title"], allow).split()), cleaned(entry["body"], allow)
    found = proved(title, body, entry["quotes"], shown, session, is_rule=entry["type"] in _RULES)
    if isinstance(found, str):
        return f"{shorten(title, 80) or 'a unit without a title'}: {found}"
    evidence, support = found
    relations, updated = _relations(entry["relations"], shown.existing)
    kind = updated.type if updated else entry["type"]
    unit = Unit(
        id=updated.id if updated else f"{kind}/{title_slug(title)}", source=SourceName.BRAIN, type=kind, title=title,
        body=body, domain=(updated.domain if updated else None) or _domain(entry["domain"]),
        tags=tuple(dict.fromkeys(slugify(tag, max_chars=40) for tag in entry["tags"][:8] if tag.strip())),
        confidence=bounded(entry["confidence"], support), origin=Origin.AI_SESSION, related=relations,
        session=session.id, evidence=evidence, last_modified=now.date(),
        alternatives=tuple(shorten(cleaned(one, allow), 300) for one in entry["alternatives"][:6] if one.strip()),
        created=(session.ended or session.started or now).date(),
    )  # fmt: skip
    reason = shorten(cleaned(entry["reason"], allow), 200) or "found by the model"
    return Proposal(unit=unit, reason=reason, updates=updated.id if updated else None)


def support_of(title: str, body: str, evidence: Sequence[Evidence], shown: PromptTexts) -> float | None:
    """Return the share of a claim's words in its quotes, less if in doubt; None if they do not support the claim.

    They do not if they share nothing with it, if it names what the session never does, or if it turns round what
    they say: by a `not`, by another name or number, or by what was chosen instead of what.
    """
    sentences = [sentence for one in evidence for sentence in _SENTENCE_END.split(one.quote)]
    quotes, known = " ".join(sentences), shown.text.lower()
    said, claimed = _stems(quotes), _stems(title)
    names = _names(title)
    is_invented = not said & claimed and 2 * sum(stem not in known for stem in claimed) > len(claimed)
    if is_invented or not all(_has(known, name) for name in names):
        return None
    if not said & (claimed | _stems(_SENTENCE_END.split(body, maxsplit=1)[0])):
        return None
    nearest = max(sentences, key=lambda one: len(_stems(one) & claimed))
    is_turned = (len(_NOT.findall(title)) + len(_NOT.findall(nearest))) % 2 == 1
    is_other = is_turned or _is_swapped(title, nearest, quotes, shown)
    if is_other and len(_stems(nearest) & claimed) >= _SAME_CLAIM * len(claimed):
        return None
    left, right = _stems(" ".join(rejected_in(title))), _stems(" ".join(rejected_in(nearest)))
    if left and right and not left & right and left <= said:
        return None
    is_quoted = all(_has(quotes.lower(), name) for name in names)
    share = len(said & claimed) / max(1, len(claimed))
    return share if is_quoted and not is_turned else min(share, _SUPPORTED / 2)


def _is_swapped(title: str, nearest: str, quotes: str, shown: PromptTexts) -> bool:
    """Return whether a title has a name or number that its quotes lack, in place of one that they have."""
    known = _COUNTS | {name.lower() for name in re.findall(r"(?<=[a-z,] )[A-Z][\w.+#-]*\w", shown.text)}
    ours, theirs, quoted = (set(re.findall(r"[\w.+#-]*\w", text.lower())) for text in (title, nearest, quotes))
    return bool(known & (ours - quoted) and known & (theirs - ours))


def bounded(confidence: float, support: float) -> float:
    """Return the confidence that a model gives, limited to what the quotes support."""
    return float(min(max(confidence, 0), 1 if support >= _SUPPORTED else UNSUPPORTED))


def _names(claim: str) -> set[str]:
    """Return the names and numbers in a claim, in lower case; capitals tell none if most words have them."""
    words = [word for word in claim.split()[1:] if len(word) > 3]
    is_plain = 2 * sum(word[0].isupper() for word in words) <= len(words)
    found = ((code or other or (name if is_plain else "")) for code, name, other in _NAME.findall(claim))
    return {name.lower().strip("`().") for name in found} - {""}


def _has(text: str, name: str) -> bool:
    """Return whether a text has a number as it is, or a word that begins as a name does: `postgres`, `PostgreSQL`."""
    is_number = name[-1].isdigit()
    return re.search(rf"(?<!\w){re.escape(name if is_number else name[:6])}" + r"(?!\w)" * is_number, text) is not None


def _stems(text: str) -> frozenset[str]:
    """Return the beginnings of the telling words of a text."""
    return frozenset(word[:_STEM_CHARS] for word in words_of(text))


def _relations(
    entries: Sequence[Mapping[str, Any]], existing: Sequence[Unit]
) -> tuple[tuple[Relation, ...], Unit | None]:
    """Return the relations to units that were shown, and the unit to update."""
    relations: dict[Relation, None] = {}
    updated: Unit | None = None
    for entry in entries[:20]:
        if not 1 <= entry["number"] <= len(existing):
            continue
        near = existing[entry["number"] - 1]
        if entry["relation"] == UPDATES:
            updated = updated or near
        else:
            relations[Relation(id=near.id, relation=RelationType(entry["relation"]))] = None
    return tuple(one for one in relations if updated is None or one.id != updated.id), updated


def _domain(named: str) -> str:
    parts = [slugify(part, max_chars=40) for part in re.split(r"[/\\]+", named) if part.strip(". ")]
    return "/".join(parts[:4]) or "general"


def is_foreign(text: str, session: Session) -> bool:
    """Return whether most of a text is in a script in which hardly anything was said in the session."""
    said = (event.text for event in session.events if event.kind in (EventKind.PROMPT, EventKind.REPLY))
    letters, known = script_of(text), script_of("\n".join(said))
    if not letters or not known:
        return False
    script, count = letters.most_common(1)[0]
    return count > _FOREIGN_SCRIPT_SHARE * letters.total() and known[script] < _KNOWN_SCRIPT_SHARE * known.total()


def _said_by(event: Event, text: str, found: re.Match[str]) -> tuple[Speaker, SpeechOrigin]:
    if text is event.text:
        return said_in(event, found.start(), found.end())
    # What an edit replaced is the file's, whoever wrote that.
    return (event.speaker, event.origin) if text is event.after else (Speaker.TOOL, SpeechOrigin.TOOL_RESULT)
