"""Secrets that only the structure of a document tells: Kubernetes Secrets, SQL rows, blocks of keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nugget.redaction.judging import is_given_password
from nugget.redaction.structured import Span

_FAR = 20_000
"""Characters to either side in which the parts of one document are looked for."""
_DATA = re.compile(
    r"(?m)^(?P<indent>[ \t]*)(?:data|stringData):[ \t]*$\n(?P<body>(?:(?:(?P=indent)[ \t]+\S|[ \t]*#).*(?:\n|\Z))+)"
)
_JSON_DATA = re.compile(r"\b(?:data|stringData)\"?\s{0,4}:\s{0,4}\{(?P<body>[^{}]{1,16000})\}")
_ENTRY = re.compile(
    r"(?m)^[ \t]*[\w.\"'-]+:[ \t]+[\"']?(?P<value>[^\s\"'|>][^\s\"']{2,})|^[ \t]+(?P<line>[^\s:#][^\n]{3,})$"
)
_JSON_ENTRY = re.compile(r"[\w.-]+\"?\s{0,4}:\s{0,4}[\"']?(?P<value>[^\"'\s,}]{3,})")


def manifests(text: str, marks: Sequence[int]) -> Iterator[Span]:
    """Yield the values of Kubernetes Secrets; a line break or quote that JSON escaped counts as one."""
    view, last = text.replace("\\n", " \n").replace('\\"', ' "'), -1
    for at in marks:
        if at >= last:
            begin = max(view.rfind("\n---", max(0, at - _FAR), at), at - _FAR, last, 0)
            stop = view.find("\n---", at, at + _FAR)
            last = stop if stop >= 0 else min(len(view), at + _FAR)
            for bodies, entries in ((_DATA, _ENTRY), (_JSON_DATA, _JSON_ENTRY)):
                for body in bodies.finditer(view, begin, last):
                    for entry in entries.finditer(view, *body.span("body")):
                        group = entry.lastgroup or "value"
                        if is_given_password(entry[group].strip()):
                            yield *entry.span(group), "kubernetes-secret"


_INSERT = re.compile(r"(?i)insert\s+into\s+[^\s(]{1,80}\s*\((?P<columns>[^()]{1,800})\)\s*values\s*")
_ROW = re.compile(r"\s*,?\s*\((?P<row>(?:[^()']|'(?:[^']|'')*'|\([^()']*\)){1,4000})\)")
_CELL = re.compile(r"\s*(?:N|E)?'(?P<value>(?:[^']|'')*)'\s*(?:,|$)|[^,]*(?:,|$)")
_SECRET_COLUMN = re.compile(
    r"(?i)(?:passw|passwd|pass\b|pwd|kennwort|passphrase|secret|token|api[ _-]?key|private_?key)"
    r"(?!.*(?:hash|digest|salt|_at|_id))"
)


def rows(text: str, marks: Sequence[int]) -> Iterator[Span]:
    """Yield the values that statements of SQL insert into columns of secrets."""
    for insert in (insert for at in marks if (insert := _INSERT.match(text, at))):
        columns = [bool(_SECRET_COLUMN.search(column)) for column in insert["columns"].split(",")]
        at = insert.end()
        while any(columns) and (row := _ROW.match(text, at)):
            at = row.end()
            for is_secret, cell in zip(columns, _CELL.finditer(text, *row.span("row")), strict=False):
                if is_secret and cell["value"] and is_given_password(cell["value"]) and cell["value"][0] != "$":
                    yield *cell.span("value"), "password"


_KEY_BEGIN = re.compile(r"-{4,5} ?BEGIN (?P<name>[A-Z0-9 ]{0,30})PRIVATE KEY(?: BLOCK)? ?-{4,5}")
_KEY_END = re.compile(r"-{4,5} ?END(?: [A-Z0-9 ]{1,60}-{4,5})?")
_KEY_CHARS = 16_384
_KEY_BODY = re.compile(r"[A-Za-z0-9+/=]{24}")
_CUT_KEY = re.compile(
    r"(?:\s*(?:Proc-Type|DEK-Info|Comment|Version): [^\n]*)*"
    r"(?:(?:\s|\\{1,16}[nrt]|\d+(?:â\x86\x92|\|)|[+-](?=[A-Za-z0-9]))*[A-Za-z0-9+/=]{20,})*(?:\s*[A-Za-z0-9+/]+={1,2})?"
)


def private_keys(view: str) -> Iterator[Span]:
    """Yield PEM and OpenPGP blocks, also with escaped line breaks; of a cut one, what there is of it."""
    begins = [*_KEY_BEGIN.finditer(view)] if "PRIVATE KEY" in view else []
    limits = [begin.start() for begin in begins[1:]] + [len(view)] * bool(begins)
    end: re.Match[str] | None = None
    for begin, limit in zip(begins, limits, strict=True):
        if end is None or end.start() < begin.end():
            end = _KEY_END.search(view, begin.end()) or re.compile(r"\Z").search(view)
        limit = min(limit, begin.end() + _KEY_CHARS)
        if end and end.start() < limit:
            stop = end.end()
        else:
            cut = _CUT_KEY.match(view, begin.end(), limit)
            stop = cut.end() if cut else begin.end()
        if _KEY_BODY.search(view, begin.end(), stop):
            yield begin.start(), stop, "private-key"
