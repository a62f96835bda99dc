"""Titles and sentences of units, worded so that they stand alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nugget.extraction.phrases import ANSWERED, WIDE, WORDS, features, says, words_of

TITLE_CHARS = 80

_MARKS = re.compile(r"(`[^`\n]*`)|(?<![\w/*!.])\*\*(?=[^\s/*])|(?<=\S)\*\*(?![\w/*])|^[\s✅❌⚠️•🎯🚀🎉>-]+")
_LINK = re.compile(r"\[([^\[\]]{1,300})\]\([^)]{0,500}\)")
_LABEL = re.compile(
    r"^(?:\*\*)?(?P<label>[\w`](?:[^*\n:—–]|:(?=\d)){1,60}?)(?:\*\*)?\s*(?::|\s[-–—])(?:\*\*)?\s+(?=\S)"
)
_ASIDE = re.compile(
    r"(`[^`]*`)|(?<![=+*/:-])\s+\((?:[^()]|\([^()]*\))*\)|\s[—–]\s[^—–]+\s[—–](?=\s)"
    r"|,\s(?:which|who|whose|where)\s[^,;:]+,(?=\s)"
)
"""Asides in brackets, between dashes, or between commas; or inline code, which has none."""
_CODE_FIRST = re.compile(
    r"`|[a-z][\w .-]{0,20}[\u3040-\u9fff]|(?!(?:in|on|re|first|non|pre|per|up|off|self|multi|read|write|run|end"
    r"|third)-)[a-z]+(?:[A-Z_.(/-]|:\S|\d)|--"
)
_CLAUSES = ("full_stop", "colon", "reason", "second_verb", "adds", "alternative", "named_then")
"""Phrases between whole parts of a sentence, in the order in which a title may end there."""
_NO_SENTENCE = re.compile(
    r"^[^\s\u3040-\u9fff]+$|^\S+: \S*(?:::|<)\S*$|^\W*https?://\S+$|[;{]\s*$|[\"',;)]\s*//|^(?:const|let|var|return"
    r"|import|export|def|func|class) [^.]*[=({]"
)
"""A bare link, or a line of code."""
_LINES = re.compile(
    r"\s*\((?:~?lines?|line|see) ~?[\d–-]+(?:[^()]*)\)|(?<=\.go):\d+(?:-\d+)?|\s+at lines? \d+(?:-\d+)?"
    r"|\s+on line \d+(?:-\d+)?|:\d+(?:-\d+)?(?=`)"
)
_ASKS = re.compile(r"[?？](?:\s|$)|？")
_NO_SUBJECT = re.compile(r"(?!Always|Across|Besides)[A-Z][a-z]+s (?:the|an?|any|both|each|every|its|using)\b")
_CODE = re.compile(r"`[^`]*`|\([^)]*\)")
IMPERATIVES = frozenset(WORDS["imperatives"].split())
"""Verbs that begin a request or a rule."""


def clean(text: str) -> str:
    """Return a sentence as prose on one line, without markup."""
    unescaped = re.sub(r"(?<!`)\\`", "`", text).replace('\\"', '"')
    return " ".join(_MARKS.sub(r"\1", _LINK.sub(r"\1", unescaped)).split())


def point_of(text: str) -> str:
    """Return a sentence without a leading label, `Found it!` or `The root cause is that`."""
    if answered := ANSWERED.match(text.strip()):
        return _answer(answered.group("question"), answered.group("answer"))
    plain = text.strip()
    if not text.startswith("**"):
        plain = _LINK.sub(r"\1", plain.lstrip("✅❌⚠️•-* "))
    marked, said = _LABEL.match(plain), clean(text)
    rest = clean(plain[marked.end() :]) if marked else ""
    is_named_again = marked and words_of(marked["label"]) <= words_of(rest) and not says("value").match(rest)
    if marked and (says("empty_label").match(clean(marked["label"])) or is_named_again):
        said = rest
    before, said = "", says("commit_prefix").sub("", _LINES.sub("", said))
    while said != before:
        before = said
        for name in ("lead_ins", "announces"):
            shorter = says(name).sub("", said, count=1)
            if len(shorter) + 3 * len(WIDE.findall(shorter)) >= 6:
                said = shorter
    return capitalised(says("words_of_now").sub("", said))


def title_of(text: str, context: str = "") -> str:
    """Return a title of at most TITLE_CHARS characters for a text in its context; empty if no whole part fits."""
    if _ASKS.search(text):
        return ""
    short, whole = "", _ends(_LINES.sub("", text))
    uncut = (whole, plain := _ends(_ASIDE.sub(r"\1", whole)), _terse(plain))
    for part in _shorter(whole, set()):
        said = _ends(part)
        if len(said) + len(WIDE.findall(said)) < 12 or len(said) > TITLE_CHARS or says("chat").match(said):
            continue
        is_cut_well = part in uncut or (not part.count("`") % 2 and _is_whole(said, context or text))
        if is_cut_well and _is_closed(said) and stands_alone(said, context):
            if is_telling(said):
                return capitalised(said)
            short = short or capitalised(said)
    return short


def is_telling(title: str) -> bool:
    """Return whether a title has a subject and enough content words; of 16 with fewer, a reader found none good."""
    words = sum(not WIDE.search(word) for word in words_of(title)) + len(WIDE.findall(title)) / 2
    return words >= 3 and not _NO_SUBJECT.match(title)


def opening_of(text: str, context: str) -> str:
    """Return an opening of a sentence that fits in a title and stands alone, or nothing."""
    pauses, links = ([*breaks.finditer(text, 24, TITLE_CHARS + 2)] for breaks in (says("pauses"), says("joins")))
    for end in (*reversed(pauses), *links):
        said = _ends(text[: end.start()])
        if len(said) <= TITLE_CHARS and _is_closed(said) and stands_alone(said, context):
            return capitalised(said)
    return ""


def _shorter(text: str, tried: set[str]) -> Iterator[str]:
    """Yield a sentence, then shorter forms without asides, label, trailing clauses and phrases, unless it was tried."""
    if text in tried:  # a label and a concession often end at the same point
        return
    tried.add(text)
    plain = _ends(_ASIDE.sub(r"\1", text))
    yield from (text, plain)
    label, mark, rest, *_ = *re.split(rf"(:\s(?!{says('value').pattern})|：|\s[—–-]\s)", plain, maxsplit=1), "", ""
    is_told = mark[:1] not in ":：" or (is_imperative(label) and not is_imperative(rest))  # a rule, and its reason
    is_announced = not is_told or _is_label(label) or says("first_person").search(label)
    if rest and is_announced and _is_closed(label) and is_statement(rest, text):
        yield from _shorter(says("announces").sub("", says("lead_ins").sub("", rest)), tried)
    told, point, *_ = *says("turns").split(plain, maxsplit=1), ""
    if len(point) + len(WIDE.findall(point)) > 30 and _is_closed(told) and not is_imperative(told):
        yield from _shorter(point, tried)
    yield _terse(plain)
    if (main := says("leading").sub("", plain)) != plain:
        yield from _shorter(main, tried)
    for breaks in map(says, _CLAUSES):
        for end in reversed([*breaks.finditer(plain, 0, 2 * TITLE_CHARS)]):
            head = _ends(plain[: end.start(end.lastgroup or 0)])
            if _is_followed(end.lastgroup, head, plain[end.end() :], plain):
                yield head


def _terse(text: str) -> str:
    """Return a sentence that is a little too long without its articles, as in a headline."""
    while len(text) > TITLE_CHARS and (found := says("article").search(text)):
        text = text[: found.start()] + text[found.end() :]
    return text


def _is_followed(kind: str | None, head: str, rest: str, whole: str) -> bool:
    """Return whether a sentence may end at a break: another statement follows, and it does not only announce that."""
    if kind == "colon":
        return says("named").search(head) is not None or not is_statement(rest, whole)
    if kind == "named":  # a rule or a denial may hold only with what follows
        return " but " not in rest and not any(features()[one].search(head.lower()) for one in ("must", "not"))
    rest = rest.partition(" ")[2] if kind == "joined" else rest  # a verb alone goes on with the subject before
    return kind is None or is_statement(rest, whole)


def _is_label(text: str) -> bool:
    """Return whether the text before a colon or dash only names the subject of the rest."""
    is_short = text.count(" ") < 3 and not is_imperative(text)
    names = is_short or not stands_alone(text, "the") or not is_statement(text, "the")
    return names and len(text) <= 60 and "," not in text


def _ends(text: str) -> str:
    return text.lstrip(" ,;:!—–-。：，").rstrip(" .,;:!—–-。：，").removesuffix(", OR")


def _is_whole(said: str, context: str) -> bool:
    """Return whether a shortened sentence is still complete, with a verb that is not its last word."""
    ends = bool(WIDE.search(said)) or said[-1:] in "`)"
    return is_statement(said if ends else said.rpartition(" ")[0], context)


def _is_closed(said: str) -> bool:
    """Return whether all brackets and quotation marks are closed, and the ending is one of a sentence."""
    pairs = all(said.count(one) == said.count(other) for one, other in ("()", "[]", "{}", "“”", "「」", "（）"))
    return pairs and not (said.count("`") % 2 or said.count('"') % 2 or says("ends_hanging").search(said))


def split_reason(text: str) -> tuple[str, str]:
    """Return a claim and the reason that its sentence gives, which may be empty."""
    found = says("reason").search(text)
    if not found or found.start() < 12 or len(text) - found.end() < 8 or not _is_closed(text[: found.start()]):
        return text, ""
    return text[: found.start()].rstrip(" ,;-–—"), text[found.end() :].strip()


def stands_alone(title: str, context: str) -> bool:
    """Return whether a title is complete and needs no sentence before it."""
    if says("hangs").match(title) or says("fleeting").search(title):
        return False
    _, colon, rest = _CODE.sub("``", title).partition(": ")
    return not colon or is_statement(rest, context)


def is_statement(text: str, context: str = "") -> bool:
    """Return whether an English text has a verb or says what to do; other languages always pass.

    `context` is the whole text around it: a phrase of a few names does not show its language.
    """
    if not says("english").search(context or text):
        return True
    return is_imperative(text) or says("tells").search(text) is not None or says("verb").search(text) is not None


def is_imperative(text: str) -> bool:
    """Return whether a text begins with a verb that asks for something or lays it down."""
    return text.lower().lstrip("`'\" ").split(" ", 1)[0].rstrip(".,:;!") in IMPERATIVES


def capitalised(text: str) -> str:
    """Return a text with a capital first letter, unless it begins with code."""
    return text if _CODE_FIRST.match(text) else text[:1].upper() + text[1:]


def _answer(question: str, answer: str) -> str:
    """Return a question and its answer as a statement."""
    answer = says("recommended").sub("", answer)
    asked = question.strip().rstrip("?")
    either, _, other = says("asks_either").sub("\n", asked, count=1).partition("\n")
    if other and answer in either:
        return f"{answer} instead of {other}"
    if found := says("asks_which").match(asked):
        return capitalised(f"{found.group('what')} {found.group('rest')}".strip() + f": {answer}")
    return f"{answer}: {asked}"


def sentence(text: str) -> str:
    """Return a sentence with its full stop, or nothing for a bare link, a line of code or a fragment."""
    one = balanced(re.sub(r"\s*\(?``\)?", "", text)).rstrip(" :;,")
    is_torn = "`" not in text and any(text.count(mark[0]) != text.count(mark[1]) for mark in ("[]", "{}"))
    if not one or is_torn or _NO_SENTENCE.search(one):
        return ""
    return capitalised(one) + ("" if one[-1] in ".!?。！？" else "。" if WIDE.match(one[-1]) else ".")


def balanced(text: str) -> str:
    """Return a text without a backtick, bracket or quotation mark that is not closed."""
    if text.count("`") % 2:
        text = text[: text.rfind("`")].rstrip()
    if text.count("(") > text.count(")"):
        text = text[: text.rfind("(")].rstrip()
    if text.count('"') % 2:
        text = text.replace('"', "")
    return text.rstrip(" ,;:—–-")
