"""Check the reply of a model piece by piece: nothing in it is trusted, and each unit stands on its own.

A unit is accepted if it is well formed, in the language of the session, and has a quote that appears verbatim in
what the model was shown. A domain or related unit that it names is reduced to what is allowed.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate, combinations, product
from typing import Any

from nugget.config import Settings
from nugget.extraction.phrases import WORDS, expression, turned_down_in, words_of
from nugget.extraction.proposals import Proposal, edited_files, is_foreign
from nugget.extraction.titles import TITLE_CHARS, capitalised, title_of
from nugget.infra.llm.gate import object_schema, problems_in
from nugget.models import (
    EventKind,
    Evidence,
    KnowledgeType,
    Origin,
    Relation,
    RelationType,
    Scope,
    Session,
    SourceName,
    Speaker,
    SpeechOrigin,
    Unit,
)
from nugget.models.sessions import is_own_words
from nugget.redaction import allow_list, redact
from nugget.sources.speakers import said_in
from nugget.text import shorten, slugify, title_slug

UPDATES = "updates"
"""The relation with which a model says that a unit belongs in the file of an existing one."""

MAX_QUOTE_CHARS, MIN_QUOTE_CHARS, _ANSWER_CHARS = 600, 8, 20

_RULES = ("belief", "decision", "pattern", "constraint", "rejection")
"""Types that say what to do; pasted or printed text alone is not proof of one."""
_OF_THE_PAST = ("bug", "rejection", "tuning")
"""Types that may rest on code that was later removed."""
_STATED = (EventKind.PROMPT, EventKind.REPLY, EventKind.FILE_EDIT)
_MAX_BODY_CHARS, _MAX_READ, _LEAST_TITLE_CHARS = 8000, 40, 30
_LINE_MARK = re.compile(r"\A(?:USER|PASTED BY USER|AGENT(?: \([^)]*\))?|SUMMARY): |^[$+-] ", re.MULTILINE)
# Comments, controls, and invisible or direction-changing characters, which make a text read differently to a
# reviewer and to a model.
_INVISIBLE = re.compile(
    "<!--.*?(?:-->|\\Z)|[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff"
    "\U000e0000-\U000e007f]",
    re.DOTALL,
)

_TEXT = {"type": "string"}
_RELATION = {"number": {"type": "integer"}, "relation": _TEXT | {"enum": [UPDATES, *map(str, RelationType)]}}
_TEXTS = {"type": "array", "items": _TEXT}
_UNIT_SCHEMA = object_schema({
    "type": _TEXT | {"enum": [kind.value for kind in KnowledgeType]},
    "title": _TEXT | {"minLength": 4, "maxLength": 300}, "domain": _TEXT | {"maxLength": 200},
    "path": _TEXT | {"maxLength": 500}, "tags": _TEXTS, "confidence": {"type": "number", "description": "0 to 1"},
    "body": _TEXT | {"minLength": 20, "maxLength": _MAX_BODY_CHARS}, "quotes": _TEXTS | {"minItems": 1},
    "reason": _TEXT, "alternatives": _TEXTS, "relations": {"type": "array", "items": object_schema(_RELATION)},
})  # fmt: skip
WINDOW_SCHEMA = object_schema({"summary": _TEXT, "units": {"type": "array", "items": _UNIT_SCHEMA}})

_NEEDED = ("type", "title", "body", "summary", "quotes")
"""Required properties of an entry; the others have a neutral default."""
_NOTHING: Mapping[str, Any] = {"string": "", "array": [], "number": 0.5}

UNSUPPORTED = 0.79
"""The most confidence in a unit whose title shares few words with its quotes."""
_SUPPORTED, _SAME_SENTENCE, _SAME_CLAUSE = 0.5, 0.75, 0.5
"""The share of a claim's words that a quote needs to support it, and of both their words to be a near copy."""
_STEM_CHARS = 4
_SAYS = {name: f"(?i:{expression(parts)})" for name, parts in WORDS["support"].items()}
_DENIALS = tuple(accumulate((_SAYS[name] for name in ("not", "like_not", "limit", "less")), "{}|{}".format))
"""Expressions for a `not`: the plain ones, then more and more of those that may stand for one."""
_COUNTS, *_OPPOSITES = (
    frozenset(group.split()) for group in WORDS["support"]["counts"] + WORDS["support"]["opposites"]
)
_NAME = re.compile(r"`([^`\n]+)`|(?<=[\w`,;)] )([A-Z][\w.+#-]{2,})|\b(\w*\d[\w.]*\w|\w+_\w+|[a-z]+[A-Z]\w+)\b")
_WORD = r"[\w+#-]*\w"
_UNIT = r"\A(\d[\d.,]*)[a-z]{1,2}\Z"
"""A number with its unit, which may also be written apart: `700ms`, `700 ms`."""
_SENTENCE_END = r"(?<=[.!?])\s|(?<=。)|\n\s*\n"
_CLAUSE_END = (
    rf"{_SENTENCE_END}|(?<=[;:,])\s(?!{_SAYS['less']})|(?<=[、，；])|\s[-–—]\s|—|\((?!\))|(?<!\()\)"
    rf"|{_SAYS['joint']}"
)
_MARKS = "*`\"'“”‘’«»"
"""Markdown and quotation marks, which models add and omit."""


def well_formed(value: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any] | str]:
    """Yield each entry of a reply's list that fits the schema; for others, the name and the problem."""
    kind = schema["required"][-1]
    entries = value[kind]
    for entry in entries[:_MAX_READ]:
        if problems := problems_in(entry, schema["properties"][kind]["items"], where=kind[:-1]):
            names = (entry.get(key) for key in ("title", "summary")) if isinstance(entry, dict) else ()
            name = next((name for name in names if isinstance(name, str) and name.strip()), "one without a title")
            yield f"{shorten(name, 80)}: {shorten('; '.join(problems), 200)}"
        else:
            yield entry
    if len(entries) > _MAX_READ:
        yield f"{len(entries) - _MAX_READ} more {kind} in one reply, which were not read"


def filled(value: object, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a reply with the parts that it left out: the object around its list, and optional properties.

    Return None without a list.
    """
    kind = schema["required"][-1]
    whole = value if isinstance(value, dict) else {kind: value}
    entries, parts = whole.get(kind), schema["properties"][kind]["items"]["properties"]
    if not isinstance(entries, list):
        return None
    return {"summary": "", **whole, kind: [_filled(one, parts) if isinstance(one, dict) else one for one in entries]}


def _filled(entry: Mapping[str, Any], parts: Mapping[str, Any]) -> Mapping[str, Any]:
    known = {name: entry[name] for name in parts if name in entry}
    if isinstance(known.get("quotes"), str):
        known["quotes"] = [known["quotes"]]
    if isinstance(known.get("type"), str):
        known["type"] = known["type"].strip().lower()
    spare = [name for name in parts if name not in _NEEDED and problems_in(known.get(name), parts[name])]
    return known | {name: _NOTHING[parts[name]["type"]] for name in spare}


def cleaned(text: str, allow: Sequence[re.Pattern[str]]) -> str:
    """Return a text without secrets, comments, control characters and invisible characters."""
    return redact(_INVISIBLE.sub("", text).encode("utf-8", "replace").decode(), allow=allow).text.strip()


def proved(
    claim: str, body: str, entry: Mapping[str, Any], text: str, session: Session
) -> tuple[tuple[Evidence, ...], float] | str:
    """Return the evidence in a window's text for a claim, and how far it supports it (0 to 1), or why it is dropped."""
    if not claim or not body:
        return "nothing is left of it without comments and invisible characters"
    found = [find_quote(quote, text, session) for quote in entry["quotes"][:5]]
    evidence = tuple(dict.fromkeys(one for one in found if one is not None))
    if not evidence:
        return "its quote is not in the session"
    if is_foreign(f"{claim}\n{body}", session):
        return "not in the language of the session"
    if entry["type"] in _RULES and not _is_said(claim, evidence):
        return "rests only on what was printed, pasted or quoted"
    if entry["type"] not in _OF_THE_PAST and all(_is_taken_out(one.quote, session) for one in evidence):
        return "rests on what a later edit took out"
    support = support_of(claim, evidence, text)
    return "its quotes do not say it" if support is None else (evidence, support)


def find_quote(quote: str, text: str, session: Session) -> Evidence | None:
    """Return the evidence for a quote: the matching text and the records that contain it.

    Spacing and marks may differ, words may not. Of a quote with an ellipsis, only the longest part must match. Return
    None if the quote is not in what was shown.
    """
    part = max(re.split(r"\[…\]|…|\.{3}", _LINE_MARK.sub("", html.unescape(quote).strip())), key=len)
    words = re.sub(f"[{_MARKS}]", "", part).strip(" .,;:!?。\n").split()
    if len(quote) > 2 * MAX_QUOTE_CHARS or not words:
        return None
    loose = rf"(?:[\s{_MARKS}]|(?<=\n)[+-] )+".join(f"[{_MARKS}]*".join(map(re.escape, word)) for word in words)
    whole = rf"[{_MARKS}]*{loose}[{_MARKS}.!?。]*"
    is_answer = len(" ".join(words)) < MIN_QUOTE_CHARS  # such as `2`, which is evidence only as a whole line
    pattern = re.compile(rf"(?m)(?:\A|(?<=^USER: )){whole}$" if is_answer else whole)
    seen = pattern.search(text)
    if seen is None or len(seen[0]) > 2 * MAX_QUOTE_CHARS:
        return None
    first = None
    for event in session.events:
        for said in filter(None, (event.text, event.after, event.before)):
            if found := pattern.search(said):
                # Replaced text belongs to the file, whoever wrote it.
                is_old = said is not event.text and said is not event.after
                written = (Speaker.TOOL, SpeechOrigin.TOOL_RESULT) if is_old else (event.speaker, event.origin)
                speaker, origin = said_in(event, *found.span()) if said is event.text else written
                records = (event.uuid,) if event.uuid else ()
                one = Evidence(session=session.id, quote=found[0], records=records, speaker=speaker, origin=origin)
                if speaker is Speaker.USER:  # whoever else said it before
                    return one
                first = first or one
    return None if is_answer else first or Evidence(session=session.id, quote=seen[0])


def _is_said(claim: str, evidence: Sequence[Evidence]) -> bool:
    """Return whether somebody's own words tell of a claim, adopt a pasted text, or briefly answer a printed one."""
    own = [one.quote for one in evidence if is_own_words([one])]
    is_pasted = any(one.speaker is Speaker.QUOTED for one in evidence)
    return any(is_pasted or len(quote) < _ANSWER_CHARS or _stems(quote) & _stems(claim) for quote in own)


def _is_taken_out(quote: str, session: Session) -> bool:
    """Return whether a quote occurs only in edits, and the last of them removes it."""
    texts = ((one, (one.text, one.before or "", one.after or "")) for one in session.events if one.kind in _STATED)
    holding = [one for one, held in texts if any(quote in text for text in held)]
    is_edited = bool(holding) and all(one.kind is EventKind.FILE_EDIT for one in holding)
    return is_edited and quote not in (holding[-1].after or "")


def proposal_of(
    entry: Mapping[str, Any], text: str, existing: Sequence[Unit], session: Session, settings: Settings, now: datetime
) -> Proposal | str:
    """Return the proposal for an entry of a reply, or the reason for refusing it."""
    allow = allow_list(settings)
    title, body = capitalised(" ".join(cleaned(entry["title"], allow).split())), cleaned(entry["body"], allow)
    found = proved(title, body, entry, text, session)
    if isinstance(found, str):
        return f"{shorten(title, 80) or 'a unit without a title'}: {found}"
    evidence, support = found
    if len(title) > TITLE_CHARS and len(shorter := title_of(title)) >= _LEAST_TITLE_CHARS:
        title, body = shorter, f"{title.rstrip('.')}.\n\n{body}"
    relations, updated = _relations(entry["relations"], existing)
    kind = updated.type if updated else entry["type"]
    others = tuple(shorten(cleaned(one, allow), 300).rstrip(".") for one in entry["alternatives"][:6] if one.strip())
    named = f"/{entry['path'].strip()}"
    files = [path for _, path in edited_files(session.events, session) if named.endswith(f"/{path}")]
    folders = [slugify(part, max_chars=40) for part in re.split(r"[/\\]+", entry["domain"]) if part.strip(". ")]
    domain = (updated.domain if updated else None) or "/".join(folders[:4]) or "general"
    if others and kind == KnowledgeType.DECISION and not updated:
        body += f"\n\n**Instead of:** {'; '.join(others)}."
    unit = Unit(
        id=updated.id if updated else f"{kind}/{title_slug(title)}", source=SourceName.BRAIN, type=kind, title=title,
        tags=tuple(dict.fromkeys(slugify(tag, max_chars=40) for tag in entry["tags"][:8] if tag.strip())),
        confidence=bounded(entry["confidence"], support), origin=Origin.AI_SESSION, related=relations,
        body=body, domain=domain, session=session.id, evidence=evidence, last_modified=now.date(),
        alternatives=others, scope=Scope(path=files[0]) if files and not updated else None,
        created=(session.ended or session.started or now).date(),
    )  # fmt: skip
    reason = shorten(cleaned(entry["reason"], allow), 200) or "found by the model"
    return Proposal(unit=unit, reason=reason, updates=updated.id if updated else None)


def support_of(title: str, evidence: Sequence[Evidence], text: str) -> float | None:
    """Return the share of a claim's words in its quotes, less if in doubt, or None if they do not support it.

    They do not if they share nothing with it, if it names something absent from the session, or if it changes what
    they mean: a `not`, a limit, a name or number, what was chosen, who does what to whom, what is the cause.
    """
    quotes, known = "\n\n".join(one.quote for one in evidence), text.lower()
    said, claimed = _stems(quotes), _stems(title)
    names = _names(title)
    if not said & claimed or not all(_has(known, name) for name in names):
        return None
    copies = _near_copies(title, quotes)
    if any(all(_is_changed(ours, one, title, quotes, text) for one in theirs) for ours, theirs in copies):
        return None
    left, right = _stems(turned_down_in(title)), _stems(turned_down_in(quotes))
    if (left and left <= said and right & claimed and not left & right) or _is_reversed(title, quotes):
        return None
    is_told = all(_has(quotes.lower(), name) for name in names) and not all(one.quote.endswith("?") for one in evidence)
    share = len(said & claimed) / max(1, len(claimed))
    return share if is_told else min(share, _SUPPORTED / 2)


def _near_copies(title: str, quotes: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each sentence or clause of a title with the likest of its quotes that share most of its words."""
    for ends, least in ((_SENTENCE_END, _SAME_SENTENCE), (_CLAUSE_END, _SAME_CLAUSE)):
        for ours in re.split(ends, title):
            likeness: dict[float, list[str]] = {}
            for theirs in re.split(ends, quotes):
                shared, words = _stems(ours) & _stems(theirs), _stems(ours) | _stems(theirs)
                if 1 < len(shared) >= least * len(words) and not re.search(_SAYS["complaint"], theirs):
                    likeness.setdefault(len(shared) / len(words), []).append(theirs)
            if likeness and not re.match(r"\s*not\b", ours):  # `X, not Y` is a contrast
                yield ours, likeness[max(likeness)]


def _is_changed(ours: str, theirs: str, title: str, quotes: str, text: str) -> bool:
    """Return whether a near copy says more than its quote, the contrary, or the same of something else."""

    def has_name(clause: str, other: str) -> bool:
        known, low = set(map(_key, re.findall(_WORD, other))), other.lower()
        code = re.findall(_WORD, " ".join(re.findall(r"`[^`\n]+`|[\w/-]+\.[a-z]{2,4}\b", clause)))
        new = (word for word in re.findall(_WORD, clause) if _key(word) not in known)
        new = (word for word in new if word.lower() not in low or any(map(str.isdigit, word)))
        return any(word in code or _is_name(word, text) for word in new)

    def after(clause: str, word: str) -> frozenset[str]:
        return next(filter(None, map(_stems, re.findall(rf"\b{word}\b(.*)", clause.lower())[0].split())), frozenset())

    left, right = (set(re.findall(r"\w+", one.lower())) for one in (ours, theirs))
    pairs = (pair for group in _OPPOSITES for pair in product(group & left - right, group & right - left))
    is_opposed = any(after(ours, one) == after(theirs, other) for one, other in pairs)
    is_turned = all((_denials(ours, theirs, no) + _denials(theirs, ours, no)) % 2 for no in _DENIALS)
    is_other = has_name(ours, quotes) and has_name(theirs, title)
    return is_turned or is_opposed or is_other or _is_wider(ours, theirs, title.lower()) or _is_swapped(ours, theirs)


def _is_wider(ours: str, theirs: str, title: str) -> bool:
    """Return whether a near copy leaves out what limits its quote, and the title has no limit of its own."""
    limit, less, scope, narrow, every = (_SAYS[name] for name in ("limit", "less", "scope", "narrow", "every"))
    if re.search(every, title) and re.search(f"{limit}|{_SAYS['unsure']}", theirs) and not re.search(every, theirs):
        return True
    if re.search(f"{limit}|{less}", title) or {*re.findall(narrow, title)} - {*re.findall(narrow, theirs.lower())}:
        return False
    kept = {"all", "ever", "each", "any", *map(_key, re.findall(r"\w+", title))}
    phrases = re.finditer(rf"(?:{less}|{scope})\s+(?:(?:the|an?|our|its|their|this|it|they|we|of)\s)*\W*(\w+)", theirs)
    gone = [phrase[0] for phrase in phrases if _key(phrase[1]) not in kept]
    is_cut = _stems(ours) <= _stems(theirs) and bool(gone or re.search(limit, theirs))
    return is_cut or any(re.match(less, phrase) for phrase in gone)


def _is_swapped(ours: str, theirs: str) -> bool:
    """Return whether the words around a third, which both clauses have, change sides and none is passive."""
    if re.search(f"{_SAYS['passive']}|{_SAYS['causal']}", f"{ours}\n{theirs}"):
        return False
    mine, other = ([_key(word) for word in re.findall(_WORD, one) if _stems(word)] for one in (ours, theirs))
    at = {key: other.index(key) for key in mine if key in other}
    return any(at[one] > at[verb] > at[two] for one, verb, two in combinations(at, 3))


def _is_reversed(title: str, quotes: str) -> bool:
    """Return whether a title gives as the cause what a sentence of its quotes gives as the effect."""
    told = (re.match(_SAYS["causal"], one, re.DOTALL) for one in (title, *re.split(_SENTENCE_END, quotes)))
    parts = [tuple(map(_stems, found.groups("") if found else [""] * 6)) for found in told]
    (cause, effect), *others = ((one[0] | one[3] | one[4], one[1] | one[2] | one[5]) for one in parts)
    return any(len(cause & b) > len(cause & a) and len(effect & a) > len(effect & b) for a, b in others)


def _denials(clause: str, other: str, no: str) -> int:
    """Return how often a clause denies what the other speaks of too; a `not` at the end always counts."""
    after = (re.split(r"\b(?:and|und|et|y)\b", clause[found.end() :])[0] for found in re.finditer(no, clause))
    denied = (_stems(" ".join(words.split()[:6])) for words in after)
    return sum(not stems or bool(stems & _stems(other)) for stems in denied)


def _key(word: str) -> str:
    """Return the part of a word to compare: all of a number, the beginning of any other word."""
    low = re.sub(_UNIT, r"\1", word.lower())
    return low if any(char.isdigit() for char in low) or low in _COUNTS else low[:_STEM_CHARS]


def _is_name(word: str, text: str) -> bool:
    """Return whether a word is a number or a name, which the session mostly capitalises."""
    if any(char.isdigit() for char in word) or word.lower() in _COUNTS or re.search(r"[A-Za-z][A-Z]|_", word):
        return True
    capital = re.findall(rf"(?<=[a-z,] ){re.escape(word[0].upper() + word[1:])}\b", text)
    return len(capital) > len(re.findall(rf"(?<![\w./-]){re.escape(word.lower())}(?![\w/-])", text))


def bounded(confidence: float, support: float) -> float:
    """Return the confidence that a model gives, limited to what the quotes support."""
    return float(min(max(confidence, 0), 1 if support >= _SUPPORTED else UNSUPPORTED))


def _names(claim: str) -> set[str]:
    """Return the numbers in a claim and the beginnings of its names; capitals mean nothing if most words have them."""
    words = [word for word in claim.split()[1:] if len(word) > 3]
    is_plain = 2 * sum(word[0].isupper() for word in words) <= len(words)
    found = _NAME.findall(claim)
    code = (
        word for span, _, other in found for word in re.findall(r"v?\d+(?:[.,]\d+)*\w*|\w+", (span or other).lower())
    )
    exact = {re.sub(_UNIT, r"\1", word) for word in code}
    ours = {word if word[-1].isdigit() else word[: max(6, len(word) - 2)] for word in exact}
    return ours | {name[:6].lower().removesuffix("s") for _, name, _ in found if name and is_plain}


def _has(text: str, name: str) -> bool:
    """Return whether a text has a number, or a word that begins like this: `postgres` of `PostgreSQL`."""
    return re.search(rf"(?<!\w){re.escape(name)}" + r"(?!\d)" * name[-1].isdigit(), text) is not None


def _stems(text: str) -> frozenset[str]:
    """Return the beginnings of the content words of a text."""
    return frozenset(word[:_STEM_CHARS] for word in words_of(text))


def _relations(
    entries: Sequence[Mapping[str, Any]], existing: Sequence[Unit]
) -> tuple[tuple[Relation, ...], Unit | None]:
    """Return the relations to units that were shown, and the unit to update."""
    known = dict(enumerate(existing, 1))
    shown = [(known[one["number"]], one["relation"]) for one in entries[:20] if one["number"] in known]
    updated = next((near for near, relation in shown if relation == UPDATES), None)
    others = ((near.id, relation) for near, relation in shown if relation != UPDATES and near is not updated)
    return tuple(dict.fromkeys(Relation(id=id_, relation=RelationType(one)) for id_, one in others)), updated
