"""Requests: prompts in one line, in any language, what they want, and the symptom that they tell."""

from __future__ import annotations

import re

from nugget.extraction import titles
from nugget.extraction.phrases import ENGLISH, ERRAND, SENTENCE_END, WIDE, any_of
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
    r"|(?:please|pls|kindly)[\s,]+|i(?:'d| would) like you to |i (?:want|need) you to )+"
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
NO_AIM = any_of(r"^(?:sorry|go on|thanks?|run|stop|yes|no|as|start with|you can|https?:)\b")
"""How a sentence begins that is no errand, and yet does not say what a change is for."""
_WISHING = any_of(
    r"^(?:(?:and|so|also|then|now|but|instead|ok(?:ay)?|i think|maybe|perhaps)[, ]+)*(?:let'?s |please "
    r"|(?:we|you|i)(?:'d| would)? (?:do |really )?(?:should|need to|want to|have to|like to"
    r"|like you to|must)(?: also| just)? |consider (?=\w+ing\b))"
)
"""How a sentence begins that says what is wanted by more than the verb."""
PARTS = any_of(SENTENCE_END.pattern, r",\s+(?:and )?(?=(?:can|could) you\b)")
"""Where a sentence of a request ends, or a question begins that asks for help with what it said."""
_PROBLEM = any_of(r"\b(?:bugs?|errors?|issues?|problems?|broken|fail(?:s|ed|ing|ure)?|wrong|crash\w*|delay|slow)\b")
_NOTICED = any_of(
    r"^(?:i think|i(?:'ve| have)? notic\w+|i (?:just )?(?:see|saw|had|found)|it (?:seems|looks like))(?: that)? "
)
_SYMPTOM = any_of(
    r"\b(?:fail\w*|errors?|wrong|broken|breaks?|crash\w*|refused|rejected|hangs?|time[sd]? ?out|twice|missing|leak\w*"
    r"|slow|stuck|cannot|can't|doesn't|does not|invalid|exceptions?|panics?)\b"
)
_SYMPTOM_CHARS = 240
_PLAN_TITLE = re.compile(r"^#+\s+(?:plan:?\s+)?(.+)$", re.MULTILINE | re.IGNORECASE)
_LETTER = re.compile(r"[^\W\d_]")
_LATIN_WORD = re.compile(r"[A-Za-z_]\w{2,}")


def cleaned(prompt: str) -> str:
    """A prompt as prose on one line: without code, markup, images, tags, and without `could you please` in front."""
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
    """Whether a prompt asks for something of its own, and does not merely say `yes` or `go on`."""
    text = cleaned(prompt)
    letters = len(_LETTER.findall(text))
    is_wide = WIDE.search(text) is not None
    enough = letters >= 4 if is_wide else letters >= 8 and len(text.split()) > 1
    return enough and not _GO_ON.fullmatch(text)


def is_wish(text: str, prompt: str = "") -> bool:
    """Return whether a sentence of a prompt says what is wanted, and not how things are, as far as it is in English."""
    if not ENGLISH.search(prompt or text):
        return len(text.split()) > 1 or WIDE.search(text) is not None
    first = text.lower().lstrip("`'\" ").split(" ", 1)[0].rstrip(".,:;!")
    return first in titles.IMPERATIVES or (_WANTED.search(text) is not None and not text.rstrip().endswith("?"))


def aim_of(text: str) -> str:
    """Return what a request wants, in one line from its first sentence that says so; empty for chat and questions."""
    prose = re.sub(r",? please(?=[.!]?$)", "", cleaned(text))
    if text.startswith(PLAN_OPENING):
        return one_line(prose)
    for sentence in PARTS.split(prose):
        bare = _WISHING.sub("", sentence)
        if is_wish(sentence, prose) and not _is_errand(bare) and not sentence.endswith(("?", ":")):
            rest = prose[prose.index(sentence) + len(sentence) :]
            return titles.capitalised(one_line(bare if rest.startswith(",") else bare + rest))
    reported = (
        one for one in PARTS.split(prose)
        if _PROBLEM.search(one) and not one.endswith(("?", ":")) and not _is_errand(one)
    )  # fmt: skip
    return titles.capitalised(one_line(_NOTICED.sub("", next(reported, ""))))


def wanted(sentence: str) -> str:
    """Return what a sentence wants, without `I'd like to` before it and a colon behind it."""
    return titles.capitalised(_WISHING.sub("", sentence).rstrip(" :"))


def _is_errand(text: str) -> bool:
    found = ERRAND.match(text)
    return bool(NO_AIM.match(text) or (found and not found["tidies"]))


def symptom_of(prompt: str) -> str:
    """Return the sentence of a request that says what goes wrong; nothing if there is none."""
    lines = [titles.clean(line) for line in prompt.splitlines() if not line.lstrip().startswith(("#", "<"))]
    for sentence in (one for line in lines for one in SENTENCE_END.split(line)):
        if _SYMPTOM.search(sentence) and not sentence.endswith("?") and len(sentence) <= _SYMPTOM_CHARS:
            return titles.point_of(sentence)
    return ""


def one_line(text: str, max_chars: int = SUMMARY_CHARS) -> str:
    """As many whole sentences as fit into `max_chars`, else the first one cut at a word with `…`."""
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
    ours, theirs = (set(map(str.lower, _LATIN_WORD.findall(text))) for text in (one, other))
    return len(ours & theirs) / max(1, min(len(ours), len(theirs)))


def _joined(lines: list[str]) -> str:
    """Lines as one text; a line without an end of its own gets a full stop where a new sentence follows."""
    parts = []
    for place, line in enumerate(lines):
        following = lines[place + 1] if place + 1 < len(lines) else ""
        ends = line[-1] in ".!?…:;,。！？：、，" or not following[:1].isupper()
        parts.append(line if ends or len(line) > 100 else f"{line}.")
    return " ".join(parts)
