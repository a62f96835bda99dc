"""Find secrets in sentences with a linear model of a word, its form, and what stands around it.

scripts/train_redaction.py trains it on labelled sentences, benchmarks/secrets/sentences.jsonl.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import accumulate, chain, groupby, islice, pairwise
from operator import itemgetter
from string import ascii_letters, digits
from typing import Any

from nugget.redaction import judging as judge
from nugget.redaction.structured import CROWD, Span, block_size, strong_words

READ = judge.patterns("sentences", of_bytes=False)
_FORMS = vars(judge.patterns("forms", of_bytes=False))
_TOLD = vars(judge.patterns("telling", of_bytes=False))
_TESTS = "is_strong is_odd is_random is_scrambled is_coined is_not_placeholder is_stop_word".split()
_STRENGTHS = "hex", "is_scrambled", "is_strong", "is_coined", "number", "plain"
"""Forms of words; the first that a word has is combined with what stands around it."""
_KINDS = {"password": "password", "code": "pin", "key": "token", "login": "password"}
_CLASSES = bytes.maketrans(
    f"{ascii_letters}{digits}!$%&*?@^~+:/[]|_`{{}}();=<>\t\r".encode() + bytes(range(128, 256)),
    b"a" * 52 + b"0" * 10 + b"#" * 10 + b"-" * 7 + b"{" * 8 + b"  " + b"u" * 98 + b"v" + b"u" * 29,
)
"""A sign for the class of each byte: letters, digits, signs of passwords, names or code, spaces, others."""
_ODD = (
    re.compile(rb"0(?<!00)(?:(?<=a0)|0*+-?a|(?<=a-0)|000(?!v(?<=\n  0000v)))[^ \n]*"),
    re.compile(rb"#(?<=[auv0]#)[auv0][^ \n]*"),
)
"""Classes within a secret with digits or signs and the rest of its word; one first sign each is much faster to find."""
_SPOKEN = bytes.maketrans(
    f"{ascii_letters}{digits}\t\r\v\f\x1c\x1d\x1e\x1f\\'`([{{<)]}},.;_*?~#$%&@^".encode() + bytes(range(128, 256)),
    b"a" * 52 + b"0" * 10 + b" " * 8 + b"." * 14 + b"!" * 3 + b"+" * 6 + b"u" * 128,
)
"""The signs in which `READ.spoken_line` is looked for."""
_PART = re.compile(
    rb"(?:(?m:^)(?:\s*\d+(?:\xe2\x86\x92|\t)|(?P<listing>[-dl](?:[r-][w-][xsStT-]){3})))?+"
    rb"(?P<text>.{1,320}+\Z|.{160,319} |.{320}[\x80-\xbf]*|(?<=[\x92\t])\Z)"
)
"""A part of a line that is read as one; a line number, or the rights in a line of `ls -l`, may stand before it."""
_ABOVE, _BELOW, _FEW, _LONG_LINE, _SPARSE = 240, 2, 4, 1000, 192
"""Bytes read above a part, lines read below a word for passwords, words of a long part, bytes of minified code; and
bytes for each odd word in a text of which every odd word is read; in a denser one, only those in sentences are."""
_LEAST = 1.9, -1.1
"""The least weight of the form of a secret without and with a telling word in its part of a line."""
_SHORTEST, _LONGEST, _LONG_WORD, _NEAR = 4, 100, 24, (14, 30, 70)
"""Characters of words; and from a telling word, below which a word stands next to it, near it, or not far."""
_OPENING, _CLOSING, _QUOTES = "\\\"'`([{<*_«“‘„‚›»~", "\\\"'`)]}>*_»”’“‹,.;:!?…~", "\"'`«»“”„‘’*"


def _telling(edge: str, end: str, first: str) -> re.Pattern[str]:
    """Return a pattern for words that announce a secret, tried by their first letters, which is much faster."""
    every = "|".join(pattern.pattern for pattern in _TOLD.values()).split("|")
    words = sorted((word.removeprefix(r"\b"), word[0] == "\\") for word in every if re.match(rf"(\\b)?{first}", word))
    rests = [(word[0], word[1:2] + rf"(?<=\b{word[:2]})" * is_whole + word[2:]) for word, is_whole in words]
    groups = (f"{letter}(?:{'|'.join(rest for _, rest in group)})" for letter, group in groupby(rests, itemgetter(0)))
    return re.compile(
        f"(?:{'|'.join(groups)})".replace(r"\b", edge).replace("$", end) + ("" if end == "$" else "(?s:.){0,200}")
    )


_TELLING = _telling(r"\b", "$", "")
_MAY_TELL = [_telling(*2 * (r"(?:(?<![a-z\d])|(?![a-z\d]))",), first) for first in (r"[\0-\x7f]", r"[^\0-\x7f]")]
"""Words that announce a secret; and the same, of ASCII and others, in a text that is not split into words."""
Word = tuple[int, str, str, str]
"""Where a word of a sentence begins, the signs before it, the word, and the signs after it."""
Suspect = tuple[int, int, str, frozenset[str]]
"""Start and end, in bytes, of a word that could be a secret, the kind that it would be, and its features."""


def sentence_secrets(view: str, data: bytes, marks: Iterable[int], known: bytearray) -> Iterator[Span]:
    """Yield the secrets in the sentences of a view, whose bytes are `data`; `known` marks what has been found."""
    least = _trained()[1]
    for start, end, kind, features in suspects(data, [*marks]):
        if _score(features) >= least and known.find(0, start, end) >= 0 and not judge.is_told_public(view, start, end):
            yield start, end, f"sentence.{kind}"


@cache
def _trained() -> tuple[Mapping[str, float], float]:
    """Return the weights of features, and the least score of a secret."""
    stored: dict[str, Any] = json.loads((judge.RULES / "sentences.json").read_text("utf-8"))
    return stored["weights"], math.log(stored["threshold"] / (1 - stored["threshold"])) - stored["weights"][""]


@lru_cache(maxsize=16_384)
def _score(features: frozenset[str]) -> float:
    """Return the sum of the weights of features."""
    return math.fsum(_trained()[0].get(name, 0.0) for name in features)


def suspects(data: bytes, marks: Collection[int], least: tuple[float, float] = _LEAST) -> Iterator[Suspect]:
    """Yield the words that could be secrets in the sentences of a UTF-8 text; words for passwords are at `marks`."""
    for part, is_marked in _parts(data, marks, least[True]):
        text, begin = part["text"].decode("utf-8", "surrogateescape"), part.start("text")
        runs = [*map(_read, text.split() if text.isascii() else READ.run.findall(text))]
        is_told = any(kind for kind, _, _ in runs)
        oddness = max([odd for _, weight, odd in runs if weight >= least[is_told]], default=0)
        if part["listing"] or not (oddness or is_marked):
            continue
        above = data[max(0, begin - _ABOVE) : begin].rpartition(b"\x1f")[2]  # within one text of a session
        told_above = frozenset(filter(None, map(_told_by, above.decode("utf-8", "replace").split())))
        if (oddness > 1 and len(runs) > 1) or told_above or is_told:
            for start, end, kind, features in _of_part(text, told_above, is_told, least[is_told]):
                yield begin + start, begin + end, kind, features


def _parts(data: bytes, marks: Collection[int], least: float) -> Iterator[tuple[re.Match[bytes], bool]]:
    """Yield the parts of lines with an odd word of that weight, and of lines at `marks`, the latter with True."""
    classes, most = data.translate(_CLASSES) + b"\n", len(data) // _SPARSE + 8
    odd = [*islice((found.span() for pattern in _ODD for found in pattern.finditer(classes)), most)]
    regions = [] if len(odd) == most else [(at, at + 2 * _ABOVE) for at in sorted([*marks, *(at for at, _ in odd)])]
    if len(odd) == most:
        regions, odd, crowds, size = [], [], set[int](), block_size(len(data))
        for number, group in groupby(_readable(data, size), lambda region: region[0] // size):
            begins, ends = map(set, zip(*group, strict=True))
            block = [*zip(sorted(begins - ends), sorted(ends - begins), strict=True)]  # those that touch are one
            every = (found.span() for region in block for one in _ODD for found in one.finditer(classes, *region))
            spans = [*islice(every, size // CROWD)]
            if len(spans) == size // CROWD:
                crowds.add(number)
                block = spans = [span for begin, end in block for span in strong_words(data[begin:end], begin)]
            regions += block
            odd += spans
        marks = [at for at in marks if at // size not in crowds]
    told, last, stop = _marked_lines(data, marks), 0, 0
    for at, end in sorted([*((line, line) for line in told), *odd]):
        if at < stop:
            continue
        begin, last = max(last, classes.rfind(b" ", last, at) + 1, classes.rfind(b"\n", last, at) + 1), max(last, end)
        if at not in told and _read(data[begin:last].decode("utf-8", "replace"))[1] < least:
            continue
        line, stop = classes.rfind(b"\n", 0, at) + 1, classes.find(b"\n", at) + 1
        if stop - line > _LONG_LINE:
            codes, signs, others, numbers = map(classes[line:stop].count, (b"{", b"#", b"-", b"0"))
            if 12 * codes + 4 * (signs + others) + numbers > stop - line:
                continue
        for part in _PART.finditer(data, line, stop - 1):
            near = bisect_left(regions, (part.end(),)) - 1  # the last that begins before its end
            if near >= 0 and regions[near][1] > part.start():
                yield part, at in told


def _marked_lines(data: bytes, marks: Iterable[int]) -> set[int]:
    """Return where lines with marks begin, and the lines below, in which the answer may stand."""
    told, stop = set[int](), 0
    for at in sorted(marks):
        if at >= stop:
            told.add(data.rfind(b"\n", 0, at) + 1)
            stop = data.find(b"\n", at) % (len(data) + 1)  # the end of the line, or of the text
    for _ in range(_BELOW):
        told.update([end + 1 for begin in told if (end := data.find(b"\n", begin)) >= 0])
    return told


def _readable(data: bytes, size: int) -> Iterator[tuple[int, int]]:
    """Yield the regions, each within a block of `size` bytes, that plain words or a telling one let hold a secret."""
    lines = bytearray(b"\n" + data.translate(_SPOKEN))
    for long in [*re.finditer(rb"\n[^\n]{320,}", lines)]:
        for part in _PART.finditer(data, long.start(), long.end() - 1):
            lines[part.end()] = ord("\n")
    view, text = lines.decode("latin-1"), data.decode("utf-8", "surrogateescape")
    small = text.replace("İ", ".").lower()  # the one letter that is two in lower case
    telling = (pattern.finditer(small) for pattern in _MAY_TELL[: 2 - text.isascii()])
    ends = chain((0,), sorted(found.start() for found in chain.from_iterable(telling)))
    sizes = (len(text[first:last].encode("utf-8", "surrogateescape")) for first, last in pairwise(ends))
    told = ((view.rfind("\n", 0, at + 1), view.find("\n", at + 2 * _ABOVE)) for at in accumulate(sizes))
    stop = 0
    for begin, end in chain(told, ((len(view), len(data)),)):
        between = READ.spoken_line.finditer(view, stop, max(begin, stop))
        spans = ((found.start(), found.end() - 1) for found in between)
        spoken = (span for span in spans if _is_spoken(data[slice(*span)]))
        for first, last in (*spoken, (max(begin, stop), end if end >= 0 else len(data))):
            while first < last:
                yield first, (first := min(last, first // size * size + size))
        stop = max(stop, last)


def _is_spoken(part: bytes) -> bool:
    """Return False if fewer than half of the words of a part can be plain, which leaves no suspect in it."""
    signs = part.translate(_SPOKEN, b"\\'`([{<)]},.;_*!?~").replace(b": ", b" ")
    words, pairs = signs.split(), sum(map(signs.count, (b":", b"/", b">")))
    least = len(words) - sum(map(bytes.isdigit, words))
    return b'"' in part or not part.isascii() or least <= 2 * sum(map(bytes.isalpha, words)) + 4 * pairs


@lru_cache(maxsize=1024)  # the texts of a session repeat lines
def _of_part(text: str, told_above: frozenset[str], is_told: bool, least: float) -> Sequence[Suspect]:
    """Return the suspects in a part of a line, their places counted from its beginning."""
    words = [*_words(text)]
    told = [(kind, start) for start, _, word, _ in words if (kind := _told_by(word))]
    is_told = is_told or bool(told_above)
    plain = sum(word.isalpha() for _, _, word, _ in words)
    if not words or plain < ((not told_above or len(words) > 2) if is_told else max(2, len(words) / 2)):
        return ()
    found = []
    line = {f"plain {plain * 4 // len(words)}", f"words {len(words).bit_length()}"}
    line |= {f"in {kind}" for kind, _ in told} | {f"above {kind}" for kind in told_above}
    line |= {"listed"} if READ.listed.match(text) else set()
    for place, (start, before, word, after) in enumerate(words):
        if not _is_suspect(words, place, is_told) or _score(_of_form(word)) < least:
            continue
        form, stop = _of_form(word), start + len(word)
        near, nearest = _of_telling(start, stop, told)
        strength = next((name for name in _STRENGTHS if name in form), "other")
        last = _as_feature(words[place - 1][2]) if place else "^"
        crossed = {f"{strength} {last}", f"{strength} {nearest}", f"{strength} {_is_quoted(before, after)}"}
        if not text.isascii():
            start, stop = (len(text[:at].encode("utf-8", "surrogateescape")) for at in (start, stop))
        kind = nearest.partition(" ")[0] or next(iter(sorted(told_above)), "password")
        features = frozenset(line | form | _of_neighbours(words, place) | near | crossed)
        found.append((start, stop, _KINDS[kind], features))
    return found


def _words(text: str) -> Iterator[Word]:
    """Yield the words of a text; `user/value` and `name=value` are two."""
    signs = ""
    for run in READ.run.finditer(text):
        whole = run.group()
        inner = whole.lstrip(_OPENING)
        start, before = run.end() - len(inner), signs + whole[: len(whole) - len(inner)]
        inner = inner.rstrip(_CLOSING)
        end = start + len(inner)
        after, signs = text[end : run.end()], ""
        if not inner.isalpha() and (pair := READ.pair.match(inner)) and (pair["sign"] != "=" or _told_by(pair["name"])):
            yield start, before, pair["name"], pair["sign"]
            inner = pair["value"].lstrip(_OPENING)
            start, before = end - len(inner), pair["sign"]
        if inner:
            yield start, before, inner, after
        else:
            signs = whole


def _is_suspect(words: Sequence[Word], place: int, is_told: bool) -> bool:
    """Return True for a word that holds a digit or a sign, or one that something announces."""
    _, before, word, after = words[place]
    if " " in word and any(map(judge.is_stop_word, word.split())):
        return False
    if oddness := _oddness(word):
        return oddness + is_told > 1
    if not is_told or not _SHORTEST <= len(word) <= _LONGEST or READ.public.match(word):
        return False
    is_alone = _is_quoted(before, after) or READ.hyphened.match(word) or len(words) < _FEW
    return bool(is_alone) or (place > 0 and _gives(f"{words[place - 1][2]}{words[place - 1][3]}{before}"))


def _is_quoted(before: str, after: str) -> bool:
    """Return True for the signs around a word that stands alone between quotes."""
    return bool(before and after) and before[-1] in _QUOTES and after[0] in _QUOTES


@lru_cache(maxsize=16_384)
def _of_form(text: str) -> frozenset[str]:
    """Return the features of a word's own form."""
    size = len(text)
    shape = READ.other.sub("#", READ.number.sub("0", READ.upper.sub("A", READ.lower.sub("a", text))))[:6]
    classes = sum(bool(pattern.search(text)) for pattern in (READ.lower, READ.upper, READ.number, READ.other))
    forms = (name for name, pattern in _FORMS.items() if pattern.search(text))
    tests = (test for test in _TESTS if getattr(judge, test)(text))
    sizes: tuple[str, ...] = f"length {size if size < 12 else size // 4 * 4}", f"distinct {min(len(set(text)), 12)}"
    sizes += (f"phrase {text.count(' ')}",) if " " in text else ()
    return frozenset((*forms, *tests, *sizes, f"shape {shape}", f"classes {classes}"))


def _of_neighbours(words: Sequence[Word], place: int) -> set[str]:
    """Return the words and signs around a word."""
    _, before, _, after = words[place]
    one, two, three = (_as_feature(words[place - back][2]) if place >= back else "^" for back in (1, 2, 3))
    next_one, next_two, *_ = [*(_as_feature(other) for _, _, other, _ in words[place + 1 : place + 3]), "$", "$"]
    signs = (words[place - 1][3] if place else "") + before
    features = {f"-1 {one}", f"-2 {two}", f"-3 {three}", f"-2 {two} {one}", f"+1 {next_one}", f"+2 {next_two}"}
    features |= {f"before {signs[-1:]}", f"sign {signs[:1]}", f"after {after[:1]}"}
    return features | ({"quoted"} if _is_quoted(before, after) else set())


def _of_telling(start: int, end: int, told: Sequence[tuple[str, int]]) -> tuple[set[str], str]:
    """Return the features of the telling words around a word, and the kind and distance of the nearest before it."""
    near = sorted((sum(start - at >= limit for limit in _NEAR), kind) for kind, at in told if at < start)
    behind = {f"{kind} {sum(at - end >= limit for limit in _NEAR)} behind" for kind, at in told if at >= end}
    within = {f"{kind} within" for kind, at in told if start == at}
    before = [f"{kind} {distance}" for distance, kind in near]
    return {f"{one} before" for one in before} | behind | within, before[0] if before else ""


@lru_cache(maxsize=16_384)
def _told_by(word: str) -> str:
    """Return the kind of secret that a word announces, if any."""
    word = word.lower() if len(word) < _LONG_WORD or not word.isascii() else ""
    told = _TELLING.search(word)
    return next(kind for kind, words in _TOLD.items() if words.match(word, told.start())) if told else ""


@lru_cache(maxsize=16_384)
def _gives(run: str) -> bool:
    """Return True for a word after which a plain word may be a secret, and for a quoted one."""
    return run[0] in _QUOTES or bool(READ.giving.search(run)) or bool(READ.hyphened.match(run))


@lru_cache(maxsize=16_384)
def _read(run: str) -> tuple[str, float, int]:
    """Return the kind that a run announces, the most that a word weighs if it is odd, and how odd it is."""
    odd = [part for part in ([run] if run.isascii() else READ.run.findall(run)) if _oddness(part)]
    weights = (_score(_of_form(word)) for part in odd for _, _, word, _ in _words(part))
    return _told_by(run), max(weights, default=-math.inf), max(map(_oddness, odd), default=0)


@lru_cache(maxsize=16_384)
def _oddness(run: str) -> int:
    """Return 2 for what looks like a password, 1 for another word with a digit or a sign within, else 0."""
    word = "" if run.isalpha() else run.lstrip(_OPENING).rstrip(_CLOSING)
    is_odd = _SHORTEST <= len(word) <= _LONGEST and READ.odd_word.search(word)
    if not is_odd or READ.public.match(word) or judge.IS.address.match(word):
        return 0
    return 1 + (not word.isdigit() and bool(judge.is_strong(word) or READ.unspaced.search(word)))


def _as_feature(word: str) -> str:
    """Return a word as a feature of its neighbour: in lower case, the end of Chinese or Japanese, or a sign."""
    if READ.unspaced.search(word):
        return word[-2:]
    if word.isdigit():
        return "0"
    return word.lower() if len(word) < 16 and READ.spoken.fullmatch(word) else "#"
