"""Requests in any language, on one line: the wish or symptom in a prompt, and how long a statement holds."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date, timedelta
from itertools import takewhile

from nugget.extraction import titles
from nugget.extraction.phrases import ENGLISH, ERRAND, FEATURES, FIRST_PERSON, RULES, SENTENCE_END, WIDE, any_of
from nugget.models import EventKind, Session
from nugget.models.nuggets import SUMMARY_CHARS
from nugget.sources.speakers import PLAN_OPENING

_FENCED = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_TAG = re.compile(r"<(\w[\w-]*)(?:\s[^<>]*)?>.*?</\1>|</?\w[\w-]*/?>", re.DOTALL)
_IMAGE = any_of(r"\[(?:Image|Pasted text)[^\]]*\]")
_MARKUP = re.compile(r"^\s*(?:[-=*_]{3,}\s*$|(?:(?:#{1,6}|[-*+•>❯$]|\d{1,2}[.)])\s+)+)")
_COURTESY = any_of(
    r"^(?:(?:hi|hey|hello|ok(?:ay)?|so|now|great|thanks?(?: you)?|alright|also|and|then|well|yes|no|claude)\b"
    r"[\s,.!:;—-]*"
    r"|(?:please|pls|kindly)[\s,]+|i(?:'d| would) like (?:you )?to |i (?:want|need) you to |let'?s )+"
)
_ASKED = any_of(r"^(?:can|could|would|will) (?:you|we) (?:please |also |now |maybe )*")
_GO_ON = any_of(
    r"(?:ok(?:ay)?|yes|yep|yeah|no|nope|sure|go|go ahead|go on|continue|proceed|do (?:it|that|this|both|all)|done"
    r"|next|commit(?: (?:it|this|that|and push))?"
    r"|(?:commit this, )?push(?: it)?(?:,? (?:and )?(?:open )?(?:a )?(?:draft )?pr)?"
    r"|thanks?|thank you|perfect|great|good|nice|cool|please|try again|again|retry|run it|fix it|looks? good|lgtm|stop"
    r"|wait|hm+|what\??|why\??|ja|nein|weiter|mach weiter|oui|non|continue[sz]?|sí|si|sigue|vai|да|нет|далее|продолжай"
    r"|继续|好的?|是的?|はい|続けて|계속|네|[\d\s.,!?/]+|[\s,.]|please|pls)+[\s.!?…。！？]*"
)
_WANTED = any_of(
    r"\b(?:needs?|wants?|should|must|has to|have to|let'?s|would like|'d like to|consider(?= \w+ing\b)"
    r"|instead|so that(?!')|please|never|always|don't)\b"
)
NO_AIM = any_of(
    r"^(?:sorry|go on|thanks?|run|stop|don'?t|yes|no|as|start with|you can|https?:)\b|\"[^\"]+\"=\"",
    r"^(?:das|es|hier|ça|ce|c['’]est|eso|esto|es|это|那|这|それ|これ)(?:\b|(?<=[那这])是|(?<=れ)は)",
)
"""The beginning of chat, an answer or a remark, which does not say what a change is for."""
_ENGLISH = any_of(ENGLISH.pattern, r"\b(?:let's|here's|i'd|i'm|my|about|please|can|what|how)\b")
_PERSONAL = any_of(
    r"^(?:we|you|they|he|she|here|while|although|but|because|let'?s|consider)\b",
    r"^\w+ (?:it|them|this|that|these|those)\b",
)
"""The beginning of a sentence about the moment, or one that depends on another."""
PARTS = any_of(SENTENCE_END.pattern, r",\s+(?:and )?(?=(?:can|could) you\b)")
"""The end of a sentence in a request, or the beginning of a question about it."""
_SYMPTOM = any_of(
    r"\b(?:fail\w*|errors?|wrong|broken|breaks?|crash\w*|refused|rejected|hangs?|time[sd]? ?out|twice|missing|leak\w*"
    r"|slow|stuck|cannot|can't|doesn't|does not|invalid|exceptions?|panics?)\b"
)
_SYMPTOM_CHARS = 240
_PLAN_TITLE = re.compile(r"^#+\s+(?:plan:?\s+)?(.+)$", re.MULTILINE | re.IGNORECASE)
_OPENER = any_of(
    r"^(?:(?:yeah|ye[sp]|ok(?:ay)?|no(?:pe)?|well|oh|ah|hm+|so|and|but|also|really|because|cos)[\s,.…]+)+(?=(?:let'?s"
    r"|we|i|i'd|you|just|use|maybe|please|don't)\b)"
)
"""The opening words of a turn before the wish itself."""
_PLEASE = any_of(r",? (?:please|pls|bitte|for (?:this|that|it))(?=[ ,.;!?]|$)|,?(?: and)? (?:let me know|tell me)\W*$")
_ME = any_of(r"\b(?P<verb>(?:ask|tell|show|warn|notify)(?:ing)?) me\b")
_I = (
    r"^(?:(?:i (?:kind of )?(?:think|feel|guess)(?: like)?|maybe|perhaps|probably|looks like) )*(?:i|we)(?: also)?(?:'d"
    r"| would| will)?(?: \w+ly| might| do| just| only| also| still)*"
)
_WISHES = (
    (any_of(rf"{_I} (?:want|need|like)(?: to have)? (?P<what>(?:the|an?|all|every|each|our)\b [^,]{{2,50}}?(?<!way)"
            r"(?<!option)(?<!ability)(?<!place)|`[^`]+`) to (?P<do>[a-z]+\b.*)$"), r"\g<what> should \g<do>"),
    (any_of(r"^[^,.]{3,40}, (?P<what>the \w+ (?:is|are) (?:right|correct|fine|wrong|intended))\.?$"), r"\g<what>"),
    (any_of(r"^(?:we(?:'re| are) (?:now )?going with |let'?s (?:do|use|go with) (?=`))"
            rf"|{_I} (?:recommend|suggest|choose|go with|propose)(?: to)?(?: use| using)? (?=(?!against\b)[`\w])"
            rf"|{_I} (?:want|need) (?=\S*\w[./:`]\w)"), "Use "),
    (any_of(r"^(?:instead of|rather than) (?P<not>[^,]+), (?P<do>[a-z]+ .+?)\.?$"), r"\g<do> instead of \g<not>"),
    (any_of(r"^i(?:'ve| have)? decided (?:to|that) "), ""),
    (any_of(rf"{_I} (?:do not|don't) need "), "We don't need "),
    (any_of(rf"{_I} (?:do not|don't) (?:want|like) to (?!have\b|see\b)"), "Don't "),
    (any_of(rf"{_I} (?:do not|don't) (?:want|like)(?: to (?:have|see))?(?: any| the)? "), "No "),
    (any_of(rf"{_I} like (?P<one>[^,]+?) (?:better|more) than (?P<not>[^,]+)"), r"Prefer \g<one> over \g<not>"),
    (any_of(rf"{_I} prefer (?=.+ over\b)"), "Prefer "),
    (any_of(rf"{_I}(?: much)? (?:rather|prefer)(?: to)? (?:implement (?:it|this) as )?"), "Rather "),
    (any_of(rf"{_I} (?P<verb>want|need) (?!to\b|you\b|it to\b)"), r"We \g<verb> "),
    (any_of(rf"{_I} (?:want|need|like)(?: it)? to |^(?:(?:can|could|would|will) (?:you|we)|should i|shall i"
            r"|let me(?! know)|let'?s|let us|(?:do you )?want me to|would you like me to|i(?:'d)? (?:suggest|recommend)"
            r"|i'll|i will|we'll|we will|(?:i|we|you) (?:can|could))(?: please| also| just| now| then| instead)* "
            r"(?:make sure (?:that )?)?(?!against\b)"), ""),
    (any_of(r"^(?:i think |maybe |perhaps |probably )*(?:we|you|i|it)(?: probably| just| only| also)? (?:should|must"
            r"|have to|need to)(?: just)? (?!not )|^(?:please|pls|just|how about(?: just)?|what about|why don't we"
            r"|why not)[, ]+"), ""),
)  # fmt: skip


def cleaned(prompt: str) -> str:
    """Return a prompt as prose on one line, without code, markup, images, tags and `could you please`."""
    text = prompt
    if prompt.startswith(PLAN_OPENING):
        titled = _PLAN_TITLE.search(prompt)
        text = titled[1] if titled else prompt[len(PLAN_OPENING) :]
    text = _IMAGE.sub(" ", _TAG.sub(" ", _FENCED.sub(" ", text[:8000])))
    lines = [_MARKUP.sub("", line).strip() for line in text.splitlines()]
    prose = titles.clean(_joined([line for line in lines if line]))
    bare = _COURTESY.sub("", prose)
    while len(parts := SENTENCE_END.split(bare, maxsplit=1)) == 2 and _GO_ON.fullmatch(parts[0]):
        bare = parts[1]  # `Commit this. Now ...`
    if asked := _ASKED.match(bare):
        bare = re.sub(r"\?(?=\s)", ".", bare[asked.end() :], count=1).removesuffix("?")
    return titles.capitalised(bare if len(bare) >= 8 else prose)


def is_request(prompt: str) -> bool:
    """Return whether a prompt asks for something, and does not merely say `yes` or `go on`."""
    text = cleaned(prompt)
    letters = len(re.findall(r"[^\W\d_]", text))
    enough = letters >= 4 if WIDE.search(text) is not None else letters >= 8 and len(text.split()) > 1
    return enough and not _GO_ON.fullmatch(text)


def first_request(session: Session) -> str:
    """Return the first prompt of a session that asks for something; empty if none does."""
    prompts = (one.text for one in session.events if one.kind is EventKind.PROMPT)
    return cleaned(next(filter(is_request, prompts), ""))


def wish(text: str) -> str:
    """Return a person's wish, or an offer that they accepted, without `I want` or `Should I`."""
    said = titles.capitalised(_OPENER.sub("", titles.point_of(text)))
    worded = (pattern.sub(replacement, said, count=1) for pattern, replacement in _WISHES)
    said = next((shorter for shorter in worded if shorter != said and len(shorter) >= 12), said)
    if said.startswith("Rather ") and " than " in said:
        said = said.removeprefix("Rather ").replace(" than ", " rather than ", 1)
        said = said if titles.is_statement(said, "the") else f"Use {said[:1].lower()}{said[1:]}"
    said = re.sub(r"\bmy\b", "the user's", _ME.sub(r"\g<verb> the user", _PLEASE.sub("", said)), flags=re.IGNORECASE)
    return titles.capitalised(said.rstrip("?").strip())


def wish_of(sentence: str, prompt: str) -> str:
    """Return the wish in a sentence, worded to stand alone; empty for chat, errands and questions."""
    sentence = _COURTESY.sub("", sentence).rstrip(" :")
    if _is_errand(sentence) or (sentence[-1:] in "?？" and not _ASKED.match(sentence)):
        return ""
    said = wish(sentence)
    is_told = titles.is_imperative(said)
    if not (is_told or _ENGLISH.search(prompt)):
        return sentence if len(sentence.split()) > 1 or WIDE.search(sentence) else ""
    return said if (is_told or _WANTED.search(said)) and len(said.split()) > 2 and _is_whole(said, prompt) else ""


def aim_of(text: str) -> str:
    """Return the wish and reason of a request on one line; empty if it has neither."""
    prose = re.sub(r",? please(?=[.!]?$)", "", cleaned(text))
    if text.startswith(PLAN_OPENING):
        return one_line(prose)
    parts = PARTS.split(prose)
    for place, sentence in enumerate(parts):
        if (said := wish_of(sentence, prose)) and sentence[-1] != ":":
            if not _ENGLISH.search(prose):
                return one_line(prose[prose.index(sentence) :])
            more = takewhile(
                lambda one: wish_of(one, prose) or FEATURES["because"].search(one.lower()), parts[place + 1 :]
            )
            return titles.capitalised(one_line(_joined([said, *map(titles.capitalised, more)])))
    said = symptom_of(text)
    return one_line(said) if said and not _is_errand(said) and _is_whole(said, prose) else ""


def _is_errand(text: str) -> bool:
    found = ERRAND.match(text)
    return bool(NO_AIM.match(text) or (found and not found["tidies"]))


def _is_whole(said: str, prompt: str) -> bool:
    """Return whether a sentence stands alone, and is about the code and not the speaker."""
    is_clear = not FIRST_PERSON.search(said) and not _PERSONAL.match(said) and "..." not in said[:-3]
    return is_clear and said.count('"') % 2 == 0 and titles.stands_alone(said, prompt)


def symptom_of(prompt: str) -> str:
    """Return the sentence of a request that says what goes wrong, or nothing."""
    lines = [titles.clean(line) for line in prompt.splitlines() if not line.lstrip().startswith(("#", "<"))]
    for sentence in (one for line in lines for one in SENTENCE_END.split(line)):
        is_other = sentence.endswith("?") or RULES.search(sentence) or len(sentence) > _SYMPTOM_CHARS
        if _SYMPTOM.search(sentence) and not is_other:
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


_END = any_of(
    r"\b(?:until|till?|bis(?: zu[mr]?)?|jusqu['’](?:à ce que|à|aux?)|hasta)(?: the)? (?P<until>[^.,;]{2,60})",
    r"\b(?:for|für|pour|para) (?:this|the next|diese[nrs]?|cette|ce|est[ea]) (?P<span>week|woche|semain|semana|sprint"
    r"|month|monat|mois|mes\b|release|versi[oó]n|quarter|quartal|trimestre)",
    r"(?P<when>直到[^，。；]{2,30}|[^、。]{2,30}(?:るまで|完了まで|之前))",
)
_MONTHS = "jan|ene feb|fév mar|mär apr|avr|abr may|mai jun jul aug|ago sep oct|okt nov dec|dez|dic|déc".split()
_DAYS = {"we": 7, "wo": 7, "se": 7, "sp": 14, "mo": 31, "me": 31, "re": 60, "ve": 60, "qu": 92, "tr": 92}
"""The days in a span, by the beginning of its name."""
_STATE_DAYS = 90
"""The days after which to ask whether a condition without a date was met."""


def end_of(text: str, said_on: date) -> date | None:
    """Return the day until which a sentence holds, or on which to ask whether it still does; None without an end."""
    found = _END.search(text)
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
