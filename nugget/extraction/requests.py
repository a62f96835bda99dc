"""Requests in any language, on one line: the wish or symptom in a prompt, and how long a statement holds."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date, timedelta
from itertools import takewhile

from nugget.extraction import titles
from nugget.extraction.phrases import SENTENCE_END, WIDE, WORDS, features, says
from nugget.models import EventKind, Session
from nugget.models.nuggets import SUMMARY_CHARS
from nugget.sources.speakers import PLAN_OPENING

_FENCED = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_TAG = re.compile(r"<(\w[\w-]*)(?:\s[^<>]*)?>.*?</\1>|</?\w[\w-]*/?>", re.DOTALL)
_MARKUP = re.compile(r"^\s*(?:[-=*_]{3,}\s*$|(?:(?:#{1,6}|[-*+•>❯$]|\d{1,2}[.)])\s+)+)")
_SYMPTOM_CHARS = 240
_PLAN_TITLE = re.compile(r"^#+\s+(?:plan:?\s+)?(.+)$", re.MULTILINE | re.IGNORECASE)


def cleaned(prompt: str) -> str:
    """Return a prompt as prose on one line, without code, markup, images, tags and `could you please`."""
    text = prompt
    if prompt.startswith(PLAN_OPENING):
        titled = _PLAN_TITLE.search(prompt)
        text = titled[1] if titled else prompt[len(PLAN_OPENING) :]
    text = says("image").sub(" ", _TAG.sub(" ", _FENCED.sub(" ", text[:8000])))
    lines = [_MARKUP.sub("", line).strip() for line in text.splitlines()]
    prose = titles.clean(_joined([line for line in lines if line]))
    bare = says("courtesy").sub("", prose)
    while len(parts := SENTENCE_END.split(bare, maxsplit=1)) == 2 and says("go_on").fullmatch(parts[0]):
        bare = parts[1]  # `Commit this. Now ...`
    if asked := says("asked").match(bare):
        bare = re.sub(r"\?(?=\s)", ".", bare[asked.end() :], count=1).removesuffix("?")
    return titles.capitalised(bare if len(bare) >= 8 else prose)


def is_request(prompt: str) -> bool:
    """Return whether a prompt asks for something, and does not merely say `yes` or `go on`."""
    text = cleaned(prompt)
    letters = len(re.findall(r"[^\W\d_]", text))
    enough = letters >= 4 if WIDE.search(text) is not None else letters >= 8 and len(text.split()) > 1
    return enough and not says("go_on").fullmatch(text)


def first_request(session: Session) -> str:
    """Return the first prompt of a session that asks for something; empty if none does."""
    prompts = (one.text for one in session.events if one.kind is EventKind.PROMPT)
    return cleaned(next(filter(is_request, prompts), ""))


def wish(text: str) -> str:
    """Return a person's wish, or an offer that they accepted, without `I want` or `Should I`."""
    said = titles.capitalised(says("opener").sub("", titles.point_of(text)))
    worded = (says(name).sub(means, said, count=1) for name, means in WORDS["wishes"].items())
    said = next((shorter for shorter in worded if shorter != said and len(shorter) >= 12), said)
    if said.startswith("Rather ") and " than " in said:
        said = said.removeprefix("Rather ").replace(" than ", " rather than ", 1)
        said = said if titles.is_statement(said, "the") else f"Use {said[:1].lower()}{said[1:]}"
    said = says("for_me").sub(r"\g<verb> the user", says("please").sub("", said))
    said = re.sub(r"\bmy\b", "the user's", said, flags=re.IGNORECASE)
    return titles.capitalised(said.rstrip("?").strip())


def wish_of(sentence: str, prompt: str) -> str:
    """Return the wish in a sentence, worded to stand alone; empty for chat, errands and questions."""
    sentence = says("courtesy").sub("", sentence).rstrip(" :")
    if _is_errand(sentence) or (sentence[-1:] in "?？" and not says("asked").match(sentence)):
        return ""
    said = wish(sentence)
    is_told = titles.is_imperative(said)
    if not (is_told or says("written_in_english").search(prompt)):
        return sentence if len(sentence.split()) > 1 or WIDE.search(sentence) else ""
    return (
        said if (is_told or says("wanted").search(said)) and len(said.split()) > 2 and _is_whole(said, prompt) else ""
    )


def aim_of(text: str) -> str:
    """Return the wish and reason of a request on one line; empty if it has neither."""
    prose = re.sub(r",? please(?=[.!]?$)", "", cleaned(text))
    if text.startswith(PLAN_OPENING):
        return one_line(prose)
    parts = says("part_ends").split(prose)
    for place, sentence in enumerate(parts):
        if (said := wish_of(sentence, prose)) and sentence[-1] != ":":
            if not says("written_in_english").search(prose):
                return one_line(prose[prose.index(sentence) :])
            more = takewhile(
                lambda one: wish_of(one, prose) or features()["because"].search(one.lower()), parts[place + 1 :]
            )
            return titles.capitalised(one_line(_joined([said, *map(titles.capitalised, more)])))
    said = symptom_of(text)
    return one_line(said) if said and not _is_errand(said) and _is_whole(said, prose) else ""


def _is_errand(text: str) -> bool:
    found = says("errand").match(text)
    return bool(says("no_aim").match(text) or (found and not found["tidies"]))


def _is_whole(said: str, prompt: str) -> bool:
    """Return whether a sentence stands alone, and is about the code and not the speaker."""
    is_clear = not says("first_person").search(said) and not says("personal").match(said) and "..." not in said[:-3]
    return is_clear and said.count('"') % 2 == 0 and titles.stands_alone(said, prompt)


def symptom_of(prompt: str) -> str:
    """Return the sentence of a request that says what goes wrong, or nothing."""
    lines = [titles.clean(line) for line in prompt.splitlines() if not line.lstrip().startswith(("#", "<"))]
    for sentence in (one for line in lines for one in SENTENCE_END.split(line)):
        is_other = sentence.endswith("?") or says("rules").search(sentence) or len(sentence) > _SYMPTOM_CHARS
        if says("symptom").search(sentence) and not is_other:
            return titles.point_of(sentence)
    return ""


def one_line(text: str, max_chars: int = SUMMARY_CHARS) -> str:
    """Return as many whole sentences as fit in `max_chars`, else the first one cut at a word with `…`."""
    if len(text) <= max_chars:
        return text.rstrip()
    kept = ""
    for sentence in SENTENCE_END.split(text):
        longer = f"{kept} {sentence}".strip() if kept else sentence
        if len(longer) > max_chars:
            break
        kept = longer
    if len(kept) >= 24 or (kept and WIDE.search(kept)):
        return kept.rstrip()
    room = text[: max_chars - 1]
    cut = room.rsplit(" ", 1)[0] if " " in room[max_chars // 2 :] else room
    return titles.balanced(cut).rstrip(" ,;:—–-") + "…"


def _joined(lines: list[str]) -> str:
    """Join lines into one text, with a full stop where a new sentence follows an open line."""
    parts = []
    for place, line in enumerate(lines):
        following = lines[place + 1] if place + 1 < len(lines) else ""
        ends = line[-1] in ".!?…:;,。！？：、，" or not following[:1].isupper()
        parts.append(line if ends or len(line) > 100 else f"{line}.")
    return " ".join(parts)


_MONTHS = "jan|ene feb|fév mar|mär apr|avr|abr may|mai jun jul aug|ago sep oct|okt nov dec|dez|dic|déc".split()
_DAYS = {"we": 7, "wo": 7, "se": 7, "sp": 14, "mo": 31, "me": 31, "re": 60, "ve": 60, "qu": 92, "tr": 92}
"""The days in a span, by the beginning of its name."""
_STATE_DAYS = 90
"""The days after which to ask whether a condition without a date was met."""


def end_of(text: str, said_on: date) -> date | None:
    """Return the day until which a sentence holds, or on which to ask whether it still does; None without an end."""
    found = says("ends_on").search(text)
    if found is None:
        return None
    if found["span"]:
        return said_on + timedelta(days=_DAYS[found["span"][:2].lower()])
    until = found["until"] or found["when"]
    with suppress(ValueError):
        if exact := re.search(r"\b\d{4}-\d\d-\d\d\b", until):
            return date.fromisoformat(exact[0])
    names = _MONTHS if len(until.split()) <= 2 else ()
    if month := next((n for n, name in enumerate(names, 1) if re.match(name, until, re.IGNORECASE)), 0):
        year = re.search(r"\b20\d\d\b", until)
        return date(int(year[0]) if year else said_on.year + (month < said_on.month), month, 28)
    return said_on + timedelta(days=_STATE_DAYS)
