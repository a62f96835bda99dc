"""The format of a knowledge file: parse, validate, serialise, and edit it in place.

A knowledge file is YAML frontmatter between two `---` lines, then markdown. Nothing in a file is trusted: YAML is
read as nodes and never constructed, so tags, aliases and bombs have no effect; defects are returned as
`Problem` values with the line. The keys and their order are those of docs/knowledge-files.md.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from io import StringIO

from nugget.brain import frontmatter
from nugget.brain.frontmatter import Fields, Split, nodes, shown, split
from nugget.markdown import size_problem, title_of
from nugget.markdown.chunking import trim
from nugget.models import (
    Evidence,
    KnowledgeType,
    Origin,
    Problem,
    Relation,
    RelationType,
    Scope,
    Severity,
    SourceName,
    Speaker,
    SpeechOrigin,
    Unit,
)
from nugget.settings import YAMLRefused
from nugget.text import content_hash, shorten

MAX_FILE_BYTES = 5_000_000
"""Larger files are refused before they are read: knowledge is written by and for people."""

MAX_RELATIONS = 2_000
"""The most relations of a unit that are indexed."""

_DEFAULT_CONFIDENCE = 0.5
_TYPES = "|".join(KnowledgeType)
_FILED = re.compile(rf"(?:.*/)?domains/(?P<domain>.+)/(?P<type>{_TYPES})s/(?P<slug>[^/]+)\.md", re.IGNORECASE)
_TITLE_CHARS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """The content of a knowledge file; `unit` is None if a problem is an error.

    `lines` maps keys to their lines: `id`, `related`, and `related.0`, `related.1`... for each relation.
    """

    unit: Unit | None
    problems: tuple[Problem, ...] = ()
    lines: Mapping[str, int] = field(default_factory=dict)


def too_large(size_bytes: int, *, path: str) -> Problem:
    """Return the problem of a file that is larger than MAX_FILE_BYTES."""
    reason = f"is {size_bytes / 1e6:.1f} MB; a knowledge file may be {MAX_FILE_BYTES // 1_000_000} MB at most"
    return Problem(path=path, reason=reason)


def parse_bytes(content: bytes, *, path: str) -> Parsed:
    """Return the content of a knowledge file, decoded and parsed."""
    if len(content) > MAX_FILE_BYTES:
        return Parsed(unit=None, problems=(too_large(len(content), path=path),))
    try:
        text = content.decode("utf-8")
        position = content.find(b"\0")
        if position < 0:
            return parse(text, path=path)
    except UnicodeDecodeError as error:
        position = error.start
    reason = f"is not UTF-8 text (byte 0x{content[position]:02x}); save it as UTF-8"
    return Parsed(unit=None, problems=(Problem(path=path, reason=reason, line=content.count(b"\n", 0, position) + 1),))


def parse(text: str, *, path: str) -> Parsed:
    """Parse a knowledge file; defects are returned as problems and never raised.

    `path` is the file's place in the brain; the folder decides the domain. Invalid optional keys are
    left out with a warning; errors leave the file without a unit.
    """
    try:
        parts = split(text)
        fields = Fields(path=path, first_line=parts.first_line, nodes=nodes(parts))
    except YAMLRefused as broken:
        return Parsed(unit=None, problems=(Problem(path=path, reason=str(broken), line=broken.line),))
    unit = _unit(fields, parts, path=path)
    if reason := size_problem(parts.body):
        fields.wrong(None, reason, Severity.WARNING)
    problems = tuple(sorted(dict.fromkeys(fields.problems), key=lambda problem: problem.line or 0))
    if any(problem.severity is Severity.ERROR for problem in problems):
        unit = None
    return Parsed(unit=unit, problems=problems, lines=fields.lines)


def serialise(unit: Unit) -> str:
    """Return a new knowledge file: the keys in their order, empty ones left out, then the body.

    `parse(serialise(unit))` returns the unit, except for white space at the ends of its body.
    """
    values: dict[str, object] = {
        "id": unit.id,
        "title": None if unit.title == _derived_title(unit.id, unit.body) else unit.title,
        "source": unit.origin,
    }
    plain = {key: _plain(values[key] if key in values else getattr(unit, key)) for key in frontmatter.KEYS}
    header = frontmatter.dump({key: value for key, value in plain.items() if value not in (None, "", [], {})})
    return f"---\n{header}---\n{trim(unit.body)}\n"


def edit(
    text: str,
    *,
    changes: Mapping[str, object] | None = None,
    body: str | None = None,
    relink: Mapping[str, str | None] | None = None,
) -> str:
    """Change keys, relations or the body of a file; every other line stays as it is, byte for byte.

    `changes` maps keys to the values of a Unit's fields, None to remove the key; `body` replaces everything
    below the frontmatter; `relink` points relations at an id to another one, or removes them (None). Raises
    KnowledgeError if the frontmatter cannot be read, or cannot be changed without touching more.
    """
    parts = split(text)
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    lines = StringIO(text.removeprefix("\ufeff"), newline="").readlines()
    first, closing = parts.first_line - 1, parts.body_line - 2
    newline = lines[0][len(lines[0].rstrip("\r\n")) :]
    after = lines[first:closing]
    for key, value in (changes or {}).items():
        after = frontmatter.set_key(after, key, _plain(value), newline=newline)
    if relink:
        after = frontmatter.relink(after, relink, newline=newline)
    below = lines[closing:]
    if body is not None:
        blank = list(itertools.takewhile(lambda line: not line.strip(), below[1:]))
        below = [below[0].rstrip("\r\n") + newline, *blank, trim(body).replace("\n", newline) + newline]
    changed = mark + "".join([*lines[:first], *after, *below])
    nodes(split(changed))  # an anchor that another key refers to may be gone
    return changed


def _plain(value: object) -> object:
    """Return a field of a Unit as a value for YAML."""
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, (Relation, Scope, Evidence)):
        named = {entry.name: _plain(getattr(value, entry.name)) for entry in dataclasses.fields(value)}
        return {key: entry for key, entry in named.items() if entry not in (None, "", [])}
    return value


def body_digest(body: str) -> str:
    """Return the SHA-256 (hex) of a body's words, which ignores white space."""
    return content_hash(" ".join(body.split()))


def domain_of(path: str) -> str | None:
    """Return the domain of the folder that a file is filed under, None outside `domains/<domain>/<type>s/`."""
    filed = _FILED.fullmatch(path)
    return filed["domain"] if filed else None


def is_id(text: str) -> bool:
    """Return True if the text can be the id of a knowledge unit: `<type>/<slug>`."""
    return re.fullmatch(rf"(?:{_TYPES})/\w[\w.+-]{{0,119}}", text) is not None


def is_domain(text: str) -> bool:
    """Return True if the text can be a domain: folder names joined by `/`, none hidden, none pointing up."""
    return re.fullmatch(r"\w[\w.+#-]{0,59}(?:/\w[\w.+#-]{0,59}){0,7}", text) is not None


def _unit(fields: Fields, parts: Split, *, path: str) -> Unit | None:
    """Return the unit of a file, as far as it can be read; problems are added to `fields`."""
    body = trim(parts.body)
    unit_id = _id(fields)
    if fields.value("type") is None:
        fields.wrong(None, f"has no `type`; add a line `type:` with one of {', '.join(KnowledgeType)}")
    kind = fields.choice(fields.value("type"), "type", KnowledgeType)
    unit = Unit(
        id=unit_id or "", source=SourceName.BRAIN, type=str(kind or ""),
        title=fields.text("title", Severity.WARNING) or _derived_title(unit_id or "", body),
        body=body, path=path, domain=_domain(fields), tags=fields.listed("tags"), confidence=_confidence(fields),
        origin=fields.choice(fields.value("source"), "source", Origin), related=_related(fields),
        scope=_scope(fields), session=fields.text("session", Severity.WARNING), evidence=_evidence(fields),
        alternatives=fields.listed("alternatives", Severity.WARNING, commas=False),
        created=fields.day("created"), last_modified=fields.day("last_modified"),
        stale_after=fields.day("stale_after", Severity.WARNING),
    )  # fmt: skip
    if kind and unit_id and not unit_id.startswith(f"{kind}/"):
        reason = f"`type` is {kind}, but the id says {unit_id.partition('/')[0]}"
        fields.wrong(fields.value("type"), reason, Severity.WARNING)
    if not body:
        fields.wrong(None, "has no text below its frontmatter", Severity.WARNING)
    if all(re.search(f"(?m)^{mark}", body) for mark in ("<<<<<<< ", "=======$", ">>>>>>> ")):
        fields.wrong(None, "has the marks of a merge conflict", Severity.WARNING)
    return unit if unit_id and kind else None


def _id(fields: Fields) -> str | None:
    """Return the id; if it is missing, the problem proposes one from the path."""
    text = fields.text("id")
    if text is not None:
        if is_id(text):
            return text
        fields.wrong(fields.value("id"), f"`id` must be <type>/<slug> such as pattern/retry-once, not {shown(text)}")
    elif not fields.problems:
        filed = _FILED.fullmatch(fields.path)
        example = f"{filed['type'].lower()}/{filed['slug']}" if filed else ""
        fields.wrong(None, f"has no `id`; add a line `id: {example if is_id(example) else 'pattern/retry-once'}`")
    return None


def _domain(fields: Fields) -> str | None:
    """Return the domain of the folder, else that of the key."""
    stated, filed = (fields.text("domain") or "").strip("/"), domain_of(fields.path)
    if stated and not is_domain(stated):
        fields.wrong(fields.value("domain"), f"`domain` must be folder names such as coding/go, not {shown(stated)}")
    elif stated and filed and stated != filed:
        reason = f"`domain` says {stated}, but the file is filed under {filed}, which counts"
        fields.wrong(fields.value("domain"), reason, Severity.WARNING)
    elif not stated:
        hint = f"it is filed under {filed}" if filed else "add a line such as `domain: coding`"
        fields.wrong(None, f"has no `domain`; {hint}", Severity.WARNING)
    return filed or stated or None


def _confidence(fields: Fields) -> float:
    """Return the number from 0 to 1, or the default if it is absent."""
    text = fields.text("confidence")
    with suppress(ValueError):
        if text is None or 0 <= float(text) <= 1:
            return _DEFAULT_CONFIDENCE if text is None else float(text)
    fields.wrong(fields.value("confidence"), f"`confidence` must be a number from 0 to 1, not {shown(text or '')}")
    return _DEFAULT_CONFIDENCE


def _related(fields: Fields) -> tuple[Relation, ...]:
    """Return the relations; invalid entries become problems."""
    node = fields.value("related")
    if node is None:
        return ()
    if node.id != "sequence":
        fields.wrong(node, "`related` must be a list of entries with `id` and `relation`")
        return ()
    relations: list[Relation] = []
    if len(node.value) > MAX_RELATIONS:
        reason = f"`related` has {len(node.value):,} entries; only the first {MAX_RELATIONS:,} count"
        fields.wrong(node, reason, Severity.WARNING)
    for entry in node.value[:MAX_RELATIONS]:
        keys = fields.keys_of(entry)
        if "id" not in keys or "relation" not in keys:
            fields.wrong(entry, "each of `related` needs an `id` and a `relation`")
            continue
        target = fields.line_of(keys["id"], "the `id` of a relation")
        kind = fields.choice(keys["relation"], "relation", RelationType)
        if target is not None and not is_id(target):
            fields.wrong(entry, f"a relation's `id` must be <type>/<slug>, not {shown(target)}")
        elif target and kind:
            fields.lines[f"related.{len(relations)}"] = fields.line(entry)
            relations.append(Relation(id=target, relation=kind))
    return tuple(relations)


def _scope(fields: Fields) -> Scope | None:
    """Return the scope; plain text is taken as its path."""
    node = fields.value("scope")
    if node is None:
        return None
    keys = {"path": node} if node.id == "scalar" else fields.keys_of(node)
    parts = {key: fields.line_of(keys[key], f"`scope.{key}`", Severity.WARNING)
             for key in ("repo", "path", "symbol") if key in keys}  # fmt: skip
    if not parts:
        fields.wrong(node, "`scope` needs one of repo, path and symbol", Severity.WARNING)
    return Scope(**parts) if any(parts.values()) else None


def _evidence(fields: Fields) -> tuple[Evidence, ...]:
    """Return the evidence of a unit; entries without a quote are left out."""
    node, found = fields.value("evidence"), list[Evidence]()
    for entry in [] if node is None else node.value if node.id == "sequence" else [node]:
        keys = {"quote": entry} if entry.id == "scalar" else fields.keys_of(entry)
        if "quote" not in keys:
            fields.wrong(entry, "each of `evidence` needs a `quote`", Severity.WARNING)
        elif quote := fields.scalar(keys["quote"], "`quote`", Severity.WARNING):
            listed = keys["records"].value if "records" in keys and keys["records"].id == "sequence" else ()
            records = [fields.line_of(record, "each of `records`", Severity.WARNING) for record in listed]
            found.append(Evidence(
                session=fields.line_of(keys.get("session"), "`session`", Severity.WARNING) or "", quote=quote,
                records=tuple(record for record in records if record),
                speaker=fields.choice(keys.get("speaker"), "speaker", Speaker, Severity.WARNING),
                origin=fields.choice(keys.get("origin"), "origin", SpeechOrigin, Severity.WARNING),
            ))  # fmt: skip
    return tuple(found)


def _derived_title(unit_id: str, body: str) -> str:
    """Return the body's heading, else the words of the id if there are at least two, else the body's beginning."""
    words = unit_id.partition("/")[2].replace("-", " ").replace("_", " ")
    named = words[:1].upper() + words[1:]
    if own := title_of(body):
        return own
    is_telling = sum(word.isalpha() and len(word) > 2 for word in named.split()) >= 2
    return named if is_telling else shorten(body, _TITLE_CHARS) or named
