"""Find secrets by a name or a sentence: settings, arguments, "the password is …".

A word alone says nothing, so its place decides. `password: kaffeepause` on a line of its own is a setting;
`password: string,` in a signature is code. Where both are possible, a leaked password is worse than a lost word.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, groupby
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits

from nugget.redaction import judging as judge

Span = tuple[int, int, str]
"""Start and end of a secret, and the rule that found it, from which `kind_of` gets its kind."""

READ = judge.patterns("text", of_bytes=True)
STEMS = {"pass": 0, "secret": 0, "k(?<=tok)en": 2, "key": 0, "auth": 0}
"""Parts of most names of secrets, each found from its letter of that number; rules, which take longer, find others."""
_BLOCK, CROWD, _CROWD, _NEAR = 65_536, 80, 56, 80
"""Bytes of a block of a long text, bytes for each odd word or name where these are a crowd, and bytes to a value."""
_SIGNS = bytes.maketrans(
    f"{ascii_lowercase}{ascii_uppercase}{digits}!#$%&*?@^~+_.-".encode(),
    b"a" * 26 + b"A" * 26 + b"0" * 10 + b"#" * 11 + b"." * 3,
)
_PUBLIC = tuple(word + sign for word in ("pub", "public") for sign in " _-")
_ENDS, _TO_VALUE = frozenset(" \t\r\n\"'`"), re.compile(r"[\w.-]*(?:\s?[:=]\s?|[\"'\\]{1,4}:?\s?|\s){0,3}")
_NAME_CHARS = f"{ascii_letters}{digits}_.-{''.join(map(chr, range(128, 256)))}"
_CLOSING = ".,;:!?)]*'\xc2\xbb"
_CELL_SIGNS = " \t\r`*\"'"


def named_secrets(view: str, stems: Iterable[int], known: bytearray) -> Iterator[Span]:
    """Yield secrets given to names or told in sentences at the places `stems`; `known` marks what was found."""
    seen: set[int] = set()  # ends of names that were looked at
    for at in _uncrowded(view, sorted(stems)):
        if view.startswith("PASS:", at) and READ.outcome.search(view, max(0, at - 200), at + 200):
            before = view[max(0, at - 200) : at].lower()
            if not (before[-1:].isalnum() or READ.account.search(before)):
                continue  # a line of a summary of tests
        first = at if known[at] else known.find(1, at, at + 40)
        last = known.find(0, first) if first >= 0 else 0
        if first >= 0 and (last < 0 or view[last] in _ENDS) and _TO_VALUE.fullmatch(view, at, first):
            continue
        if found := _named(view, at, seen) or _told(view, at):
            yield found
        elif READ.heading.match(view, at):
            yield from _below(view, at)


def block_size(length: int) -> int:
    """Return the size of the equal blocks, of `_BLOCK` bytes or a little more, that a text is read in."""
    return max(_BLOCK, length // max(1, length // _BLOCK) + 1)


def strong_words(part: bytes, begin: int) -> list[tuple[int, int]]:
    """Return the places of words that look like passwords or keys in a part of a text, which begins at `begin`."""
    signs = b" " + part.replace(b"--", b"  ").translate(_SIGNS)
    return [(begin + found.start(), begin + found.end() - 1) for found in READ.strong.finditer(signs.decode("latin-1"))]


def _uncrowded(view: str, stems: Sequence[int]) -> Iterator[int]:
    """Yield stems; of a crowd of them, only those before what looks like a password."""
    size = block_size(len(view))
    for block in [[*group] for _, group in groupby(stems, lambda at: at // size)]:
        if len(block) > size // _CROWD:
            strong = strong_words(view[block[0] : block[-1] + _NEAR].encode("latin-1"), block[0])
            near = (block[bisect_left(block, at - _NEAR) : bisect_left(block, at)] for at, _ in strong)
            block = sorted({at for stems in near for at in stems})
        yield from block


def places(text: str, part: str) -> list[int]:
    """Return the places of a part in a text."""
    return [*accumulate(map(len, text.split(part)[:-1]), lambda at, size: at + len(part) + size)]


@lru_cache(maxsize=4096)
def _meaning(name: str) -> str:
    """Return `password`, `secret`, `token`, `key`, `part` (a password is only a part of the name), or nothing."""
    joined = re.sub("(?i)(pass)[_-](?=word|phrase)", r"\1", name)
    parts = [part.lower().rstrip(digits) for part in judge.IS.parts.findall(joined)]
    while len(parts) > 1 and (parts[-1] in judge.TRAILERS or not parts[-1]):
        parts.pop()
    is_password = bool(parts and READ.password.search(parts[-1]) and parts[0][:4] not in ("hash", "test"))
    is_variable = is_password and name.isupper()  # as in `CACHE_INDEX_PASSWORD`
    others = judge.OTHER_NAMES & set(parts[-1:] if is_variable else parts[is_password:])
    if not parts or name.lower().endswith(judge.PUBLIC_KEYS) or others - judge.LAST_NAMES or others & set(parts[-1:]):
        return ""
    if any(map(READ.password.search, parts)):
        return "password" if READ.password.search(parts[-1]) else "part"
    if parts == ["key"]:
        return "key"
    if (len(parts) > 1 or name.isupper()) and (parts[-1] == "secret" or parts[-2:] == ["secret", "key"]):
        return "secret"
    return "token" if READ.key.search("".join(parts)) else ""


def _named(view: str, at: int, seen: set[int]) -> Span | None:
    """Return the value given to the name around a stem if it is a secret; each name is read once."""
    head = max(0, at - 40) + len(view[max(0, at - 40) : at].rstrip(_NAME_CHARS))
    if head < at and view[head - 1 : head] == "\\" and view[head] in "nrt":
        head += 1  # an escaped line break stands before the name
    tail = READ.tail.match(view, at)
    after = tail.end() if tail else at
    if after in seen:
        return None
    seen.add(after)
    name = view[head:after]
    meaning = "" if view[max(0, head - 9) : head] == "checksum/" else _meaning(name)
    if not meaning or (meaning in ("key", "token") and view[max(0, head - 7) : head].lower().endswith(_PUBLIC)):
        return None
    rule = "name.password" if meaning in ("password", "part") else "name.secret"
    near = view[after : after + 60].lower()
    value = READ.pair.match(view, after) if "value" in near or "content" in near else None
    if value or (value := READ.assigned.match(view, after)):
        start, given, quoted = value.start("value"), value["value"], bool(value["open"] or not value["sign"])
        if _is_given(view, (head, start), name, meaning, (value["sign"] or "=").strip(), quoted, given):
            return start, start + len(given), rule
    if bridged := READ.bridged.match(view, after):
        group = bridged.lastgroup or "value"
        given = bridged[group]
        is_likely = judge.is_generated(given, quoted=True) or (rule == "name.password" and judge.is_strong(given))
        if is_likely and not re.search(r"[()\[\]{}*|\\]", given):
            return *bridged.span(group), rule
    return None


def _is_given(view: str, place: tuple[int, int], name: str, meaning: str, sign: str, quoted: bool, given: str) -> bool:
    """Return True if the value next to a name is a secret."""
    head = place[0]
    flag = name.startswith("-")
    is_foreign = quoted and not re.search("[\\x00-\x7f]", given)  # a translation
    if (
        len(given) < 3
        or is_foreign
        or (not quoted and (sign in (",", "(") or (sign == ":" and view[head - 1 : head] == ":")))
    ):
        return False
    scattered = judge.is_random(given)
    if scattered and meaning not in ("key", "part") and judge.is_given_password(given):
        return True
    if meaning == "key" and not (scattered or flag) and not READ.key_of.search(view[max(0, head - 120) : head]):
        return False
    if meaning in ("secret", "token", "key"):
        told = bool(sign) or flag or quoted or scattered or (meaning == "key" and len(given) > 24)
        if told and judge.is_generated(given, quoted=quoted):
            return True
        if meaning != "secret" or len(given) < 6:
            return False
    if not judge.is_given_password(given):
        return False
    strong = judge.is_strong(given)
    compared = "==" in sign or sign in ("(", "!=", ",") or meaning == "part"
    if quoted:
        if (compared and not flag) or not (sign or flag):
            return strong
        if " " in given:
            return judge.is_phrase(given, words=2 if name.isupper() or "_" in name else 3)
        named = judge.is_camel(given) if given.isalpha() else not given.isdigit() and judge.are_plain_words(given)
        return len(given) >= 4 and not named
    return _is_bare(view, place, name, sign, given, strong, compared)


def _is_bare(view: str, place: tuple[int, int], name: str, sign: str, given: str, strong: bool, compared: bool) -> bool:
    """Return True if a value without quotes can be the password that its name announces."""
    head, start = place
    stop = start + len(given)
    if name.startswith("-"):
        is_help = not view[start - 3 : start].strip()
        return (sign == "=" and not given.isupper()) or (not sign and not is_help and not judge.IS.wordly.match(given))
    if strong and sign and not compared and len(given) >= 6 and not judge.is_code(given):
        return True
    before = view[max(0, head - 400) : head].replace("\\n", "\n").rpartition("\n")[2]
    spaced, follows = view[start - 1].isspace(), view[stop : stop + 1]
    ends = bool(READ.line_end.match(view, stop)) and not (follows == " " and "\n" in view[head:start])
    if not sign:
        return strong and ends and len(name) > 4 and (not name[0].isupper() or "_" in name)
    camel = judge.is_camel(given)
    if sign == "=" and not spaced:
        called = before.count("(") > before.count(")") or follows in (")", "}", ",")
        variable = name.rsplit(".", 1)[-1].replace("-", "_").isupper()
        return variable or ((not camel or (strong and not called)) and (ends or not called))
    weak = not camel and not judge.IS.wordly.match(given) and not judge.are_plain_words(given)
    if sign == ":":
        braced = "{" in before and before.count('"') % 2 == 0
        if strong and not given.isdigit():
            code = follows in (",", ";", ")", "}") and (camel or re.fullmatch(r"\w+", given))
            return ends or (spaced and not braced and not code) or (not spaced and follows in (" ", "]", "}"))
        compound = re.search(r"\w[_.-]\w|[a-z][A-Z]|wort$", name) or READ.user.search(before)
        return spaced and weak and (ends or bool(compound and follows == " " and not braced and len(given) >= 6))
    return ends and sign in ("=", "=>") and (weak or (strong and not judge.is_code(given)))


def _below(view: str, at: int) -> Iterator[Span]:
    """Yield the cells below a heading for secrets in CSV, Markdown and the output of databases."""
    first, last = view.rfind("\n", max(0, at - 400), at) + 1, view.find("\n", at, at + 400)
    if last < 0 or at - first > 400:
        return
    headings, sign = view[first:last], next((sign for sign in "|\t;," if sign in view[first:last]), "")
    names = headings.split(sign) if sign else []
    column = view.count(sign, first, at)
    meant = _meaning(names[column].strip(_CELL_SIGNS).replace(" ", "_")) if names else ""
    if not meant or not all(map((READ.cell if sign in "|\t" else READ.plain_cell).fullmatch, names)):
        return
    for _ in range(200):
        first, last = last + 1, view.find("\n", last + 1, last + 2000)
        row = view[first : last if last >= 0 else len(view)]
        cells = row.split(sign)
        if not row.strip(" -+:|\t\r") and len(row) > 3:
            pass  # the line below the headings
        elif len(cells) != len(names) or _meaning(cell := cells[column].strip(_CELL_SIGNS)):
            return
        elif len(cell) >= 5 and " " not in cell and (judge.is_strong(cell) or judge.is_generated(cell, quoted=True)):
            start = first + sum(map(len, cells[:column])) + column + cells[column].index(cell)
            yield start, start + len(cell), "table.password" if meant == "password" else "table.secret"
        if last < 0:
            return


def _told(view: str, at: int) -> Span | None:
    """Return the value told after a word for a password: `the password of the server is …`.

    Plain words do not count, and a value right after that word or a verb needs less to count.
    """
    before = view[at - 1 : at] if at else ""
    compound = before.isalnum()  # as in `Initialkennwort`
    is_code = before in ("_", ".") or (before == "-" and not view[at - 2].isalpha())
    if is_code or (compound and view[at + 4 : at + 5] != "w" and view[at : at + 4].lower() != "schl"):
        return None
    begin = READ.speaking.match(view, at)
    if not begin or not READ.spaced.match(view, begin.end()):
        return None
    word = last = begin.group().lower()
    is_verb = word[:5] in ("pass", "passe") and before != "-" and view[max(0, at - 3) : at][-2:] not in ("e ", ", ")
    if is_verb and not READ.said_of_pass.match(view, begin.end()):
        return None
    close, place = True, begin.end()
    for _ in range(14):
        token = READ.token.match(view, place, begin.end() + 200)
        if not token or ("\n" in token["gap"] and last[-1] not in (":?." if last == word else ":?")):
            return None
        given = token["word"]
        value = given.rstrip(_CLOSING)
        if value.lower() == word and "\n" not in token["gap"]:
            return None  # it tells of the rest itself
        value += "!" * (value[-1:].isdigit() and given[len(value) :].startswith("!"))
        start = token.start("word")
        stop = start + len(value)
        is_word = value.isalpha() and value.islower()
        if len(value) >= 5:
            said = value if value.isascii() else value.encode("latin-1").decode("utf-8", "replace")
            if (not is_word and (judge.is_strong if close or "=" in token["gap"] else judge.is_odd)(said)) or (
                (last in judge.SAYS or view[place - 1] == ":")
                and len(value) > 5
                and value.isalpha()
                and judge.is_given_password(value)
                and not judge.IS.wordly.match(value)
                and ("w" in word or word.startswith(("passp", "passe", "contr", "clave", "sen", "mdp")))
                and READ.said_alone.match(view, stop)
            ):
                return None if judge.is_told_public(view, start, stop) else (start, stop, "sentence.password")
        if not is_word and not READ.prose.match(given):
            return None
        last, place = given.lower() or last, token.end()
        spoken = last in judge.VERBS or last in judge.SAYS or (last == "a" and word[:3] in ("con", "cla", "sen"))
        close = spoken or last[-1] in ":>?-\x92\x94" or (close and not value)
    return None
