"""Requests in any language on one line: the wish and the symptom that a prompt states."""

from __future__ import annotations

import re
from itertools import takewhile

from nugget.extraction import titles
from nugget.extraction.claims import FIRST_PERSON
from nugget.extraction.phrases import ENGLISH, ERRAND, FEATURES, SENTENCE_END, WIDE, any_of
from nugget.models.nuggets import SUMMARY_CHARS
from nugget.sources.speakers import PLAN_OPENING

_FENCED = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_TAG = re.compile(r"<(\w[\w-]*)(?:\s[^<>]*)?>.*?</\1>|</?\w[\w-]*/?>", re.DOTALL)
_IMAGE = any_of(r"\[(?:Image|Pasted text)[^\]]*\]")
_MARKUP = re.compile(r"^\s*(?:(?:#{1,6}|[-*+•>❯$]|\d{1,2}[.)])\s+)+")
_RULE = re.compile(r"^\s*[-=*_]{3,}\s*$")
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
"""How a sentence begins that is no errand, and yet does not say what a change is for: chat, an answer, a remark."""
_ENGLISH = any_of(ENGLISH.pattern, r"\b(?:let's|here's|i'd|i'm|my|about|please|can|what|how)\b")
_PERSONAL = any_of(
    r"^(?:we|you|they|he|she|here|while|although|but|because|let'?s|consider)\b",
    r"^\w+ (?:it|them|this|that|these|those)\b",
)
"""How a sentence begins that is about the moment, or leans on another one."""
PARTS = any_of(SENTENCE_END.pattern, r",\s+(?:and )?(?=(?:can|could) you\b)")
"""Where a sentence of a request ends, or a question begins that asks for help with what it said."""
_SYMPTOM = any_of(
    r"\b(?:fail\w*|errors?|wrong|broken|breaks?|crash\w*|refused|rejected|hangs?|time[sd]? ?out|twice|missing|leak\w*"
    r"|slow|stuck|cannot|can't|doesn't|does not|invalid|exceptions?|panics?)\b"
)
_SYMPTOM_CHARS = 240
_PLAN_TITLE = re.compile(r"^#+\s+(?:plan:?\s+)?(.+)$", re.MULTILINE | re.IGNORECASE)


def cleaned(prompt: str) -> str:
    """Return a prompt as prose on one line, without code, markup, images, tags and `could you please`."""
    text = prompt
    if prompt.startswith(PLAN_OPENING):
        titled = _PLAN_TITLE.search(prompt)
        text = titled[1] if titled else prompt[len(PLAN_OPENING) :]
    text = _IMAGE.sub(" ", _TAG.sub(" ", _FENCED.sub(" ", text[:8000])))
    lines = [_MARKUP.sub("", line).strip() for line in text.splitlines() if not _RULE.match(line)]
    prose = titles.clean(_joined([line for line in lines if line]))
    bare = _COURTESY.sub("", prose)
    while (parts := SENTENCE_END.split(bare, maxsplit=1)) and len(parts) == 2 and _GO_ON.fullmatch(parts[0]):
        bare = parts[1]  # `Commit this. Now ...`
    if asked := _ASKED.match(bare):
        bare = re.sub(r"\?(?=\s)", ".", bare[asked.end() :], count=1).removesuffix("?")
    return titles.capitalised(bare if len(bare) >= 8 else prose)


def is_request(prompt: str) -> bool:
    """Return whether a prompt asks for something of its own, and does not merely say `yes` or `go on`."""
    text = cleaned(prompt)
    letters = len(re.findall(r"[^\W\d_]", text))
    is_wide = WIDE.search(text) is not None
    enough = letters >= 4 if is_wide else letters >= 8 and len(text.split()) > 1
    return enough and not _GO_ON.fullmatch(text)


def wish_of(sentence: str, prompt: str) -> str:
    """Return the wish of a sentence in words that stand alone; empty for chat, errands and questions."""
    sentence = _COURTESY.sub("", sentence).rstrip(" :")
    if _is_errand(sentence) or (sentence[-1:] in "?？" and not _ASKED.match(sentence)):
        return ""
    said = titles.wish(sentence)
    is_told = said.lower().lstrip("`'\" ").split(" ", 1)[0].rstrip(".,:;!") in titles.IMPERATIVES
    if not (is_told or _ENGLISH.search(prompt)):
        return sentence if len(sentence.split()) > 1 or WIDE.search(sentence) else ""
    return said if (is_told or _WANTED.search(said)) and len(said.split()) > 2 and _is_whole(said, prompt) else ""


def aim_of(text: str) -> str:
    """Return the wish of a request and its reason on one line; empty if it has neither."""
    prose = re.sub(r",? please(?=[.!]?$)", "", cleaned(text))
    if text.startswith(PLAN_OPENING):
        return one_line(prose)
    parts = PARTS.split(prose)
    for place, sentence in enumerate(parts):
        if (said := wish_of(sentence, prose)) and sentence[-1] != ":":
            if not _ENGLISH.search(prose):
                return one_line(prose[prose.index(sentence) :])
            more = takewhile(lambda one: wish_of(one, prose) or FEATURES["because"].search(one), parts[place + 1 :])
            return titles.capitalised(one_line(_joined([said, *map(titles.capitalised, more)])))
    said = symptom_of(text)
    return one_line(said) if said and not _is_errand(said) and _is_whole(said, prose) else ""


def _is_errand(text: str) -> bool:
    found = ERRAND.match(text)
    return bool(NO_AIM.match(text) or (found and not found["tidies"]))


def _is_whole(said: str, prompt: str) -> bool:
    """Return whether a sentence needs no other one, and speaks of the code and not of who says it."""
    is_clear = not FIRST_PERSON.search(said) and not _PERSONAL.match(said) and "..." not in said[:-3]
    return is_clear and said.count('"') % 2 == 0 and titles.stands_alone(said, prompt)


def symptom_of(prompt: str) -> str:
    """Return the sentence of a request that says what goes wrong; nothing if there is none."""
    lines = [titles.clean(line) for line in prompt.splitlines() if not line.lstrip().startswith(("#", "<"))]
    for sentence in (one for line in lines for one in SENTENCE_END.split(line)):
        if _SYMPTOM.search(sentence) and not sentence.endswith("?") and len(sentence) <= _SYMPTOM_CHARS:
            return titles.point_of(sentence)
    return ""


def one_line(text: str, max_chars: int = SUMMARY_CHARS) -> str:
    """Return as many whole sentences as fit into `max_chars`, else the first one cut at a word with `…`."""
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


def shared_words(one: str, other: str) -> float:
    """Return how much of the shorter text's distinct words the other has too (0..1)."""
    ours, theirs = (set(map(str.lower, re.findall(r"[A-Za-z_]\w{2,}", text))) for text in (one, other))
    return len(ours & theirs) / max(1, min(len(ours), len(theirs)))


def _joined(lines: list[str]) -> str:
    """Join lines to one text; a line without an end gets a full stop where a new sentence follows."""
    parts = []
    for place, line in enumerate(lines):
        following = lines[place + 1] if place + 1 < len(lines) else ""
        ends = line[-1] in ".!?…:;,。！？：、，" or not following[:1].isupper()
        parts.append(line if ends or len(line) > 100 else f"{line}.")
    return " ".join(parts)
