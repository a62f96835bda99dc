"""Secrets that only the structure of a document tells: Kubernetes Secrets, SQL rows, tables, blocks of keys."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nugget.redaction.judging import is_given_password, is_said
from nugget.redaction.structured import Span, places


def document_secrets(view: str) -> Iterator[Span]:
    """Yield the start, end and kind of each secret that the form of a document tells."""
    if "Secret" in view and "kind" in view:
        yield from _kubernetes(view)
    yield from _rows(view, view.encode("latin-1").lower().decode("latin-1"))
    yield from _cells(view)


_FAR = 20_000
"""Characters to either side in which the parts of one document are looked for."""
_KUBERNETES = re.compile(r"kind[\"']?\s{0,4}:\s{0,4}[\"']?Secret\b")
_DATA = re.compile(r"(?m)^(?P<indent>[ \t]*)(?:data|stringData):[ \t]*$\n(?P<body>(?:(?P=indent)[ \t]+\S.*(?:\n|\Z))+)")
_JSON_DATA = re.compile(r"\b(?:data|stringData)\"?\s{0,4}:\s{0,4}\{(?P<body>[^{}]{1,16000})\}")
_ENTRY = re.compile(
    r"(?m)^[ \t]*[\w.\"'-]+:[ \t]+[\"']?(?P<value>[^\s\"'|>][^\s\"']{2,})|^[ \t]+(?P<line>[^\s:#][^\n]{3,})$"
)
_JSON_ENTRY = re.compile(r"[\w.-]+\"?\s{0,4}:\s{0,4}[\"']?(?P<value>[^\"'\s,}]{3,})")


def _kubernetes(text: str) -> Iterator[Span]:
    """Yield the values of Secrets; a line break or quote that JSON escaped counts as one."""
    view = text.replace("\\n", " \n").replace('\\"', ' "')
    last = -1
    for kind in (kind for at in places(view, "kind") if (kind := _KUBERNETES.match(view, at))):
        if kind.start() < last:
            continue
        begin = max(view.rfind("\n---", max(0, kind.start() - _FAR), kind.start()), kind.start() - _FAR, last, 0)
        stop = view.find("\n---", kind.end(), kind.end() + _FAR)
        last = stop if stop >= 0 else min(len(view), kind.end() + _FAR)
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
    r"(?i)(?:passw|passwd|pass\b|pwd|kennwort|passphrase|secret|token|api_?key|private_?key)(?!.*(?:hash|digest|salt|_at|_id))"
)


def _rows(text: str, small: str) -> Iterator[Span]:
    for insert in (insert for at in places(small, "insert into") if (insert := _INSERT.match(text, at))):
        columns = [bool(_SECRET_COLUMN.search(column)) for column in insert["columns"].split(",")]
        at = insert.end()
        while any(columns) and (row := _ROW.match(text, at)):
            at = row.end()
            cells = _CELL.finditer(text, *row.span("row"))
            for is_secret, cell in zip(columns, cells, strict=False):
                if is_secret and cell["value"] and is_given_password(cell["value"]) and cell["value"][0] != "$":
                    yield *cell.span("value"), "password"


_TABLE = re.compile(
    r"(?mi)^[ \t]*(?P<head>\|[^\n]{0,300}"
    r"\b(?:pass(?:word|wd|phrase|wort)?|kennwort|secret|token|api[ _-]?key)\b[^\n]{0,300}\|)[ \t]*\n"
    r"[ \t]*\|[ :|-]{3,300}\|[ \t]*\n(?P<rows>(?:[ \t]*\|[^\n]{1,1000}(?:\n|\Z)){1,500})"
)


def _cells(view: str) -> Iterator[Span]:
    """Yield the cells of Markdown tables that stand below the name of a secret."""
    for table in _TABLE.finditer(view) if "|--" in view or "| --" in view or "|:-" in view else ():
        columns = [bool(_SECRET_COLUMN.search(name)) for name in table["head"].strip("|").split("|")]
        for row in re.finditer(r"(?m)^[ \t]*\|(?P<cells>[^\n]+)\|", table["rows"]):
            at = table.start("rows") + row.start("cells")
            for is_secret, cell in zip(columns, row["cells"].split("|"), strict=False):
                value = cell.strip(" `*")
                if is_secret and len(value) >= 5 and is_said(value):
                    yield at + cell.index(value), at + cell.index(value) + len(value), "password"
                at += len(cell) + 1


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
