"""Find secrets with Kingfisher's engine, its built-in rules and those of `rules/`; it opens with the first text."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from importlib.metadata import version
from itertools import chain, compress
from string import ascii_letters, digits
from typing import Any

from nugget.config import rule_cache
from nugget.errors import NuggetError
from nugget.redaction import judging as judge
from nugget.redaction.structured import STEMS, Span, named_secrets

READ = judge.patterns("engine", of_bytes=True)
_LAST, _LAST_RANK = ("unknown-token", "random-pair"), 3
"""Kinds that count only where no other kind is found, and their rank."""
_OF_PAIRS, _OF_TOKENS = "_.-|", "_.-/+=%"
"""Signs that may occur in the word around a part of a token."""
_SHAPES: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
    ("unknown-token", "", judge.is_unknown_token),
    ("unknown-token", _OF_TOKENS, judge.is_unknown_token),
    ("random-pair", _OF_PAIRS, judge.is_random_pair),
)
"""Kinds recognised by the form of a word alone, the signs allowed besides `_` and `-`, and the test."""
_WORD, _WORD_SIGNS = re.compile(r"[A-Za-z_-]*+(?P<digit>\d)?[A-Za-z0-9_-]*"), ascii_letters + digits + "_-"
_RUNS = bytes.maketrans(f"{_WORD_SIGNS}!#$%*+?^&".encode(), b"w" * len(_WORD_SIGNS) + b"#" * 9)
_OF_DATA, _DATA_AFTER = ("/", "+", ".", "%"), re.compile(r"[/+=%]|\.\w")
"""Signs next to a word that is part of a path or of base64."""
_JOINING = tuple("_.-/+%:|")
"""Signs before a word that can be the second part of a token."""

_JUDGES: dict[str, Callable[[str], bool]] = {
    "issued": lambda value: judge.is_not_placeholder(value) and judge.is_jumbled(value),
    "settings": lambda value: judge.is_not_placeholder(value) and judge.is_issued(value),
    "commands": judge.is_given_password,
    "prose": judge.is_strong,
    "marks": bool,
}
"""Tests of a found value by the file of its rule; the kinds of the next table have another test."""
_JUDGES_OF_KINDS: dict[str, Callable[[str], bool]] = {
    **{kind: getattr(judge, test) for test, kinds in judge.TABLES["tests"].items() for kind in kinds.split()},
    "license-key": lambda value: value == value.upper() and not value.replace("-", "").isalpha(),
    "byte-key": lambda value: bool(judge.IS.bytes.match(value)),
    "api-key": _JUDGES["settings"],
    "short-token": lambda value: judge.is_random(re.sub("^[a-z]+|[_-]", "", value)),
    "url-password": partial(judge.is_given_password, in_url=True),
    "flag-token": lambda value: (
        not judge.IS.address.match(value)
        and (judge.is_random(value) or judge.is_odd(value) or judge.is_scrambled(value))
    ),
    "told-token": lambda value: judge.is_generated(value, quoted=True),
}
_FAR = 20_000
"""Characters to each side in which the parts of one document are looked for."""


def manifests(text: str, marks: Sequence[int], _known: bytearray) -> Iterator[Span]:
    """Yield the values of Kubernetes Secrets, also with line breaks and quotes escaped by JSON."""
    view, last = text.replace("\\n", " \n").replace('\\"', ' "'), -1
    for at in marks:
        if at >= last:
            begin = max(view.rfind("\n---", max(0, at - _FAR), at), at - _FAR, last, 0)
            stop = view.find("\n---", at, at + _FAR)
            last = stop if stop >= 0 else min(len(view), at + _FAR)
            for bodies, entries in ((READ.data, READ.entry), (READ.json_data, READ.json_entry)):
                for body in bodies.finditer(view, begin, last):
                    for entry in entries.finditer(view, *body.span("body")):
                        group = entry.lastgroup or "value"
                        if judge.is_given_password(entry[group].strip()):
                            yield *entry.span(group), "manifest.kubernetes-secret"


def rows(text: str, marks: Sequence[int], _known: bytearray) -> Iterator[Span]:
    """Yield the values that statements of SQL insert into columns of secrets."""
    given = (at for at in marks if text.find("'", at, at + 5000) >= 0)
    verbs = filter(None, (READ.inserting.search(text, max(0, at - 32), at + 4) for at in given))
    for insert in filter(None, (READ.insert.match(text, verb.start()) for verb in verbs)):
        columns = [bool(READ.secret_column.search(column)) for column in insert["columns"].split(",")]
        at = insert.end()
        while any(columns) and text.find("'", at, at + 4000) >= 0 and (row := READ.row.match(text, at)):
            at = row.end()
            for is_secret, cell in zip(columns, READ.cell.finditer(text, *row.span("row")), strict=False):
                if is_secret and cell["value"] and judge.is_given_password(cell["value"]) and cell["value"][0] != "$":
                    yield *cell.span("value"), "insert.password"


def private_keys(view: str) -> Iterator[Span]:
    """Yield PEM and OpenPGP blocks, also with escaped line breaks or without their end."""
    for found in READ.key.finditer(view) if "PRIVATE KEY" in view or "Static key" in view else ():
        if len(found[0]) > 50 and re.search("[A-Za-z0-9+/=]{24}", found[0]):
            yield *found.span(), "pem.private-key"


_READERS = {manifests: r"kind[\"']?\s{0,4}:\s{0,4}[\"']?secret\b", rows: r"into\s"}
"""Readers of the text at the places of a pattern in lower case; each begins with a literal, as is fast to find."""


def scanner() -> Any:
    """Return the engine. Raises NuggetError if it cannot compile a rule, which is tried once."""
    if isinstance(engine := _engine(), str):
        raise NuggetError(f"Redaction cannot compile its rules ({engine}).", hint="Install Nugget again.")
    return engine


@cache
def _engine() -> Any:
    """Return the engine, or why it cannot compile a rule."""
    paths, folder = [str(path) for path in sorted(judge.RULES.glob("*.yaml"))], rule_cache()
    folder = folder and folder / digest_of("rules/*.yaml")
    if folder and not any(folder.glob("*.vscdb")) and sys.stderr.isatty():
        print("Preparing redaction: its rules are compiled once, which takes some seconds …", file=sys.stderr)
    from kingfisher_sdk import Rules, Scanner  # 60 MB and .2 s that only commands that redact need

    try:
        rules = Rules(paths, confidence="low", cache_dir=folder)
    except RuntimeError as error:
        return str(error).rstrip(".")
    if folder and rules.cache_status == "stored":
        for other in folder.parent.iterdir():
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)
    return Scanner(rules, base64=False)


@cache
def digest_of(*patterns: str) -> str:
    """Return a digest of the engine's version and of files of this package."""
    found = hashlib.sha256(version("kingfisher-secret-scanner").encode())
    for file in sorted(file for pattern in patterns for file in judge.RULES.parent.glob(pattern)):
        found.update(file.read_bytes())
    return found.hexdigest()[:16]


def issued_secrets(view: str) -> Iterator[Span]:
    """Yield the secrets of a view: those of the engine's rules, then named ones, then random words without a name."""
    from nugget.redaction.sentences import sentence_secrets  # only commands that redact need its fifty patterns

    data, known = view.encode("latin-1").replace(b"\0", b"\x1f"), bytearray(len(view))  # zeros read like UTF-16
    marks: dict[str, list[int]] = defaultdict(list)
    small, runs = data.lower().decode("latin-1"), data.translate(_RUNS).decode("latin-1")
    stems = {stem: [found.start() - back for found in re.finditer(stem, small)] for stem, back in STEMS.items()}
    announced = filter(partial(READ.announcing.match, small), stems["pass"])
    for start, end, rule in chain(
        _judged(view, chain(scanned(data), _typed(view, runs)), known, marks),
        named_secrets(view, chain.from_iterable(stems.values()), known),
        sentence_secrets(view, data, chain(announced, marks["password"]), known),
        chain.from_iterable(named_secrets(view, marks[kind], known) for kind in ("name", "password")),
        chain.from_iterable(
            read(view, places, known)
            for read, part in _READERS.items()
            if (places := [found.start() for found in re.finditer(part, small)])
        ),
        _shaped(view, runs, known),
    ):
        known[start:end] = b"\1" * (end - start)
        yield start, end, rule


def _end_of_run(pattern: re.Pattern[str], view: str, last: list[int], at: int) -> int:
    """Return where the run of signs around a place ends; `last` holds the latest run, so that none is read twice."""
    first, stop = last
    if not first <= at <= stop:
        found = pattern.match(view, at, first if at < first else len(view))
        reached = found.end() if found else at
        last[:] = at, stop if reached == first else reached
    return last[1]


def scanned(data: bytes, size: int = 98_304, margin: int = 2048) -> Iterator[Span]:
    """Yield start, end and rule of every finding of the engine in a text.

    Some rules take quadratic time, so the engine reads pieces of `size` bytes, cut at line ends where possible, each
    with a `margin` on both sides that is longer than the context of any rule.
    """
    begin = 0
    while begin < len(data):
        stop = data.rfind(b"\n", begin + size - margin, begin + size) + 1 or begin + size
        first = max(0, begin - margin)
        for finding in scanner().scan(data[first : stop + margin]):
            place = finding.location
            if begin <= (start := first + place["start_offset"]) < stop and finding.visible:
                yield start, first + place["end_offset"], finding.rule_id
        begin = stop


def _typed(view: str, runs: str) -> Iterator[Span]:
    """Yield JSON Web Tokens and words with a sign within, for which the engine would take ten times the time."""
    yield from ((found.start() - 2, found.end(), "issued.jwt.1") for found in READ.jwt.finditer(view) if found["parts"])
    for sign in READ.sign_within.finditer(runs):
        before = view[max(0, sign.start() - 31) : sign.start()]
        if found := READ.typed.match(view, sign.start() - len(before) + len(before.rstrip(ascii_letters + digits))):
            yield *found.span(), "prose.typed-password.1"


def _judged(view: str, every: Iterable[Span], known: bytearray, marks: dict[str, list[int]]) -> Iterator[Span]:
    """Yield those of `every` finding that their tests accept; add the places of marks to `marks`."""
    found: list[tuple[int, int, int, str]] = []
    for start, end, rule in every:
        rank, kind, family, _ = _rule(rule)
        if family == "marks":
            marks[kind].append(start)
        elif kind:
            found.append((rank, start, end, rule))
    run_end, list_end = (partial(_end_of_run, signs, view, [-1, -1]) for signs in (READ.run, READ.listed))
    for rank, start, end, rule in sorted(found):
        _, kind, family, accepts = _rule(rule)
        if kind != "recovery-code" and known.find(0, start, end) < 0:  # a rule finds only the first code
            continue
        if kind in ("typed-password", "issued-pair") and judge.is_told_public(view, start, end):
            continue
        if family == "prose":
            start, end = _said(view, start, end, kind, list_end)
        value = view[start:end]
        if accepts(value if value.isascii() else value.encode("latin-1").decode("utf-8", "replace")):
            stop = run_end(end)
            if (len(value) >= 95 and kind != "webhook-url") or judge.is_random(view[end : min(stop, end + 160)]):
                end = stop
            if rank < _LAST_RANK or not known[end - 1]:
                yield start, end, rule


def _said(view: str, start: int, end: int, kind: str, list_end: Callable[[int], int]) -> tuple[int, int]:
    """Return the start and end of a secret in a sentence, without the signs and words around it."""
    value = view[start:end].rstrip(".,;:!?)]*")
    value += "!" * (value[-1:].isdigit() and view.startswith("!", start + len(value)))
    if kind == "recovery-code":
        codes = READ.codes.search(view, start, min(list_end(start), start + 400))
        return codes.span() if codes else (start, start)
    return start, start + len(judge.before_grammar(value) if kind == "passphrase" else value)


def _shaped(view: str, runs: str, known: bytearray) -> Iterator[Span]:
    """Yield words of 20 characters or more that only their random letters and digits give away."""
    run_end, stop = partial(_end_of_run, READ.run, view, [-1, -1]), 0
    while (at := runs.find("w" * 20, stop)) >= 0 and (found := _WORD.match(view, at)):
        stop = found.end()
        word, before = found[0], view[at - 1 : at]
        is_plain = word.islower() and word.isalnum() and before not in _JOINING  # a digest, or a word
        if not found["digit"] or is_plain or not judge.is_issued(word) or known.find(0, at, stop) < 0:
            continue
        may_be = (
            before not in _OF_DATA and not _DATA_AFTER.match(view, stop),
            before != "." or "_" in word or "-" in word,
            before in (".", ":", "|") and len(word) >= 24 and view[stop : stop + 1] not in ("/", "+", "="),
        )
        for kind, signs, accepts in compress(_SHAPES, may_be):
            start, end = _whole(view, at, stop, signs, run_end)
            if accepts(view[start:end]) and not judge.is_told_public(view, start, end):
                yield start, end, f"shape.{kind}"
                break
            if signs == _OF_TOKENS and end - stop < 1024 and not {".", "="} & {*view[stop:end].rstrip("=")}:
                stop = end  # the words behind it are parts of the same whole


def _whole(view: str, start: int, end: int, signs: str, run_end: Callable[[int], int]) -> tuple[int, int]:
    """Return the start and end of the word around a part that was found."""
    first = start
    if signs:
        before = view[max(0, start - 1024) : start - (signs == _OF_PAIRS)]  # a pair's sign stands before what was found
        first = max(0, start - 1024) + len(before.rstrip(ascii_letters + digits + signs))
        first = max(first, view.rfind("=", first, start) + 1)
    if view[first - 1 : first] == "[" and (colour := READ.colour.match(view, first - 1)):
        first = min(colour.end(), end)
    if view[first - 1 : first] == "\\" and view[first] in "nrt" and first < end:
        first += 1  # an escaped line break
    return first, min(run_end(end), end + 65_536) if signs else end


@cache
def _rule(rule: str) -> tuple[int, str, str, Callable[[str], bool]]:
    """Return rank, kind (empty for no secret), family (the file of our rules) and the test of values of a rule."""
    family, kind = rule.partition(".")[0], kind_of(rule)
    if family in _JUDGES:
        given = judge.is_given_password if kind.endswith("-password") else _JUDGES[family]
        return _LAST_RANK if kind in _LAST else family != "issued", kind, family, _JUDGES_OF_KINDS.get(kind, given)
    return 2, "" if READ.no_secret.search(kind) else kind, "", judge.is_not_placeholder


@cache
def kind_of(rule: str) -> str:
    """Return the kind of secret that a rule finds: `github-token` for `issued.github-token.1`."""
    return re.sub(r"^\w+\.(?:secrets/)?|\.\d+$", "", rule)
