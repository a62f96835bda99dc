"""The store of provenance: one JSONL file per session, `$NUGGET_HOME/provenance/<workspace>/<session>.jsonl`.

Every line is an object with a `kind`:

- `{"format": 1, "kind": "session", ...}`: the session; the last such line counts.
- `{"kind": "nugget", "id": ...}`: a nugget; the last one with an id counts.
- `{"kind": "touch", "path": ...}`: a file that the session touched; the last one with a path counts.
- `{"kind": "retracted", "nugget": ID}` or `{"kind": "retracted", "touch": PATH}`: removes an earlier line;
  only earlier versions wrote such lines; this one writes the current state.

Missing keys have the defaults of nugget/models/nuggets.py; unknown keys and kinds are skipped. `line_hashes` are one
text, 16 hex digits each. A file is replaced whole (temporary file, fsync, rename), under a lock.

Nothing is written unredacted, and nothing read is trusted: an invalid line is skipped and becomes a Problem.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import date
from functools import cache
from io import BytesIO
from pathlib import Path
from string import hexdigits
from typing import TYPE_CHECKING, Any, TypeVar

from nugget.errors import TranscriptError, complaint
from nugget.infra import files
from nugget.infra.workspace import Workspace
from nugget.models import Origin, Problem, SourceName, Unit
from nugget.models.nuggets import SUMMARY_CHARS, FileTouch, Nugget, SessionRecord
from nugget.sources import UnitFiles, UnitsRead, parse_record, parse_timestamp, read_lines, storable, text_of
from nugget.text import content_hash, is_name, map_texts, shorten

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_Value = TypeVar("_Value", SessionRecord, Nugget, FileTouch)
FORMAT = 1
MAX_LINE_BYTES = 8 * 1024 * 1024
"""Longer lines are problems; a touch of a file with 100,000 lines takes 1.6 MB."""
HASH_DIGITS = 16
"""Hex digits of one line's hash."""
_WORKSPACE_FILE = "workspace.json"
_MAX_TEXT, _MAX_PARTS = 20_000, 20
_KINDS: Mapping[str, type] = {"session": SessionRecord, "nugget": Nugget, "touch": FileTouch}
_MOMENTS = ("started", "ended", "session_started", "extracted_at", "at")
_NAMES = frozenset(
    "session workspace agent id repo method records file_hash before_hash after_hash line_hashes".split()
)
"""Fields with names and hashes, which redaction must not change."""


def provenance_folder(home: Path, workspace: str) -> Path:
    """Return the folder for the sessions of a workspace, by its identity; it need not exist yet."""
    return home / "provenance" / _file_name(workspace)


def session_file(home: Path, workspace: str, session: str) -> Path:
    """Return the file of a session; an id that is not a valid file name is replaced."""
    return provenance_folder(home, workspace) / f"{_file_name(session)}.jsonl"


def session_files(home: Path, workspace: str | None = None) -> Iterator[Path]:
    """Yield the files of a workspace's sessions, by default of all workspaces, by name."""
    folder = home / "provenance" if workspace is None else provenance_folder(home, workspace)
    found = sorted(folder.glob("*.jsonl" if workspace is not None else "*/*.jsonl"))
    yield from (file for file in found if not file.name.startswith(".") and file.is_file())


def read_session_file(path: Path, content: bytes | None = None) -> tuple[SessionRecord, tuple[Problem, ...]]:
    """Return the session in a file, whose content may be given, and the lines that could not be read.

    Without a readable session line, the file's and the folder's names are the session and the workspace. Raises
    TranscriptError if the file cannot be read at all.
    """
    session: SessionRecord | None = None
    held: dict[tuple[str, str], Nugget | FileTouch] = {}
    problems: list[Problem] = []
    try:
        with path.open("rb") if content is None else BytesIO(content) as file:
            for number, (_, line) in enumerate(read_lines(file, limit=MAX_LINE_BYTES), 1):
                try:
                    value = read_line(line)
                except ValueError as error:
                    problems.append(Problem(path=str(path), line=number, reason=str(error)))
                    continue
                if isinstance(value, SessionRecord):
                    session = value
                elif isinstance(value, Nugget):
                    held["nugget", value.id] = value
                elif isinstance(value, FileTouch):
                    held["touch", value.path] = value
                else:
                    for kind in ("nugget", "touch"):
                        held.pop((kind, text_of((value or {}).get(kind))), None)
    except OSError as error:
        raise TranscriptError(f"{path} cannot be read ({error.strerror or error}).") from error
    if session is None and not problems:
        problems.append(Problem(path=str(path), reason="no line describes the session"))
    session = session or SessionRecord(session=path.stem, workspace=path.parent.name)
    nuggets = tuple(one for one in held.values() if isinstance(one, Nugget))
    touches = tuple(one for one in held.values() if isinstance(one, FileTouch))
    return replace(session, nuggets=nuggets, touches=touches), tuple(problems)


def read_line(line: bytes | None) -> SessionRecord | Nugget | FileTouch | Mapping[str, Any] | None:
    """Parse a line: a session without nuggets and touches, a nugget, a touch, or the values of a retraction.

    Returns None for a blank line or a kind that a later version may write. `line` is None if it was too long. Raises
    ValueError, which says what is invalid.
    """
    if line is None:
        raise ValueError("the line is too long")
    if not line.strip():
        return None
    values = parse_record(line)
    if values is None or not isinstance(kind := values.get("kind"), str):
        raise ValueError("not a JSON object with a `kind`")
    if isinstance(values.get("format"), int) and values["format"] > FORMAT:
        raise ValueError(f"written in format {values['format']}, which this version does not know")
    if kind not in _KINDS:
        return values if kind == "retracted" else None
    hashes = values.pop("line_hashes", "")
    if not isinstance(hashes, str) or len(hashes) % HASH_DIGITS or hashes.strip(hexdigits):
        raise ValueError("`line_hashes` are invalid")
    given = {key: _bounded(value) for key, value in values.items() if key not in ("nuggets", "touches")}
    given |= {key: parse_timestamp(given[key]) for key in _MOMENTS if key in given}
    value = _validated(kind, given)
    if isinstance(value, FileTouch):
        parts = range(0, len(hashes), HASH_DIGITS)
        return replace(value, line_hashes=tuple(hashes[n : n + HASH_DIGITS] for n in parts))
    if isinstance(value, Nugget):
        summary = shorten(" ".join(value.summary.split()), SUMMARY_CHARS)
        return replace(value, summary=summary, confidence=min(1.0, max(0.0, value.confidence)))
    return value


def line_of(value: SessionRecord | Nugget | FileTouch) -> dict[str, Any]:
    """Return the line of a session (without its nuggets and touches), a nugget or a touch."""
    kind = next(kind for kind, type_ in _KINDS.items() if isinstance(value, type_))
    bare = replace(value, nuggets=(), touches=()) if isinstance(value, SessionRecord) else value
    line = ({"format": FORMAT} if kind == "session" else {}) | {"kind": kind} | asdict(bare, dict_factory=_filled)
    return line | ({"line_hashes": "".join(line["line_hashes"])} if "line_hashes" in line else {})


def value_in(line: str, type_: type[_Value]) -> _Value:
    """Return the session, nugget or touch in a line that `line_of` made, without checking it again."""
    found: _Value = _adapters()[type_].validate_json(line)
    return found


def _filled(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the values that are not empty, with dates as text."""
    kept = ((key, value) for key, value in pairs if value not in (None, "", (), {}))
    return {key: value.isoformat() if isinstance(value, date) else value for key, value in kept}


@cache
def _adapters() -> dict[type, TypeAdapter[Any]]:
    from pydantic import TypeAdapter

    return {type_: TypeAdapter(type_) for type_ in _KINDS.values()}


def _validated(kind: str, given: Mapping[str, Any]) -> SessionRecord | Nugget | FileTouch:
    """Return the value of a line, validated by its field types and the rules for names, paths and numbers."""
    from pydantic import ValidationError

    try:
        value: Any = _adapters()[_KINDS[kind]].validate_python(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise ValueError(f"`{'.'.join(map(str, first['loc']))}` {complaint(first)}") from None
    if missing := next((name for name in ("session", "workspace", "summary", "path") if given.get(name) == ""), ""):
        raise ValueError(f"`{missing}` is missing")
    place = value.scope if kind == "nugget" else value
    for key in ("path", "previous_path"):
        path = getattr(place, key, None) or "-"
        is_outside = path.startswith(("/", "\\", "~")) or path[1:2] == ":" or {"", ".", ".."} & {*path.split("/")}
        if is_outside or "\n" in path or "\r" in path:
            raise ValueError(f"`{key}` leads out of the workspace or holds a line end")
    if kind == "nugget" and not (is_name(value.id, most=80) and math.isfinite(value.confidence)):
        raise ValueError("`id` is not valid, or `confidence` is not a number")
    return value  # type: ignore[no-any-return]


def _bounded(value: Any) -> Any:
    """Return a JSON value with lists and texts shortened, without characters that a file or the index cannot store."""
    if isinstance(value, str):
        return storable(value[:_MAX_TEXT])
    if isinstance(value, list):
        return [_bounded(part) for part in value[:_MAX_PARTS]]
    return {key: _bounded(part) for key, part in value.items()} if isinstance(value, dict) else value


def write_session(home: Path, record: SessionRecord, *, allow: Sequence[re.Pattern[str]] = ()) -> Path:
    """Write a session to the store and return its file.

    Nuggets without an id get one; those already in the file, by session, type, summary and scope, keep theirs.
    `allow` are texts that are not secrets (`redaction.allow`). Raises OSError if it cannot be written, which leaves
    the file unchanged.
    """
    file = session_file(home, record.workspace, record.session)
    from nugget.redaction import redact  # code that only reads the store does not load its rules

    cleaned = map_texts(asdict(record), lambda text: redact(text, allow=allow).text if text else text, exact=_NAMES)
    record = _adapters()[SessionRecord].validate_python(cleaned)
    with files.locked(home / "locks" / f"provenance-{file.parent.name}.lock"):
        old = file.read_bytes() if file.is_file() else b""
        record = _numbered(home, record, read_session_file(file)[0] if old else None, file)
        lines = [line_of(record), *map(line_of, record.nuggets), *map(line_of, record.touches)]
        new = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines).encode("utf-8", "replace")
        if new != old:
            files.replace(file, new)
            files.sync_folder(file.parent)
    return file


def note_workspace(home: Path, workspace: Workspace) -> None:
    """Write the location of a workspace to `workspace.json` in its folder, for the time after its deletion.

    If a checkout had another identity before (a remote was added), its sessions move to the new one.
    """
    folder = provenance_folder(home, workspace.identity)
    place = str(workspace.root)
    noted = _noted(folder)
    if place in noted:
        return
    for other in sorted((home / "provenance").glob("*/workspace.json")):
        if other.parent != folder and workspace.common_dir is not None and place in _noted(other.parent):
            for file in other.parent.glob("*.jsonl"):
                files.private_folder(folder)
                if not (folder / file.name).exists():
                    file.rename(folder / file.name)
            other.unlink()
    described = {"format": FORMAT, "identity": workspace.identity, "name": workspace.name}
    content = json.dumps(described | {"roots": [*noted, place]}, ensure_ascii=False)
    files.replace(folder / _WORKSPACE_FILE, content.encode("utf-8", "replace"))


def known_workspaces(home: Path) -> dict[str, str]:
    """Return the identities of workspaces by the folders in which they were seen."""
    files = sorted((home / "provenance").glob(f"*/{_WORKSPACE_FILE}"))
    return {place: file.parent.name for file in files for place in _noted(file.parent)}


def _noted(folder: Path) -> list[str]:
    try:
        roots = (parse_record((folder / _WORKSPACE_FILE).read_bytes()) or {}).get("roots")
    except OSError:
        return []
    return [root for root in roots if isinstance(root, str)] if isinstance(roots, list) else []


def natural_key(nugget: Nugget) -> tuple[str, str, str, str, str]:
    """Return the key of a nugget that is the same on any machine: session, type, summary, path and symbol."""
    path, symbol = nugget.scope.path or "", nugget.scope.symbol or ""
    return nugget.session, nugget.type, " ".join(nugget.summary.split()).casefold(), path, symbol


def _numbered(home: Path, record: SessionRecord, known: SessionRecord | None, file: Path) -> SessionRecord:
    """Give each nugget an id: its stored one, its own, or the next number."""
    stored = known.nuggets if known else ()
    earlier = {natural_key(nugget): nugget.id for nugget in stored}
    prefix = next((name.rpartition("-")[0] for name in earlier.values()), "") or _id_prefix(home, record, file)
    numbers = (nugget.id.rpartition("-")[2] for nugget in (*record.nuggets, *stored))
    last = max((int(number) for number in numbers if number.isdecimal()), default=0)
    numbered: dict[str, Nugget] = {}
    for nugget in record.nuggets:
        name = earlier.get(natural_key(nugget)) or nugget.id
        if not name or name in numbered:
            last += 1
            name = f"{prefix}-{last}"
        numbered[name] = replace(nugget, id=name)
    return replace(record, nuggets=tuple(numbered.values()))


def _id_prefix(home: Path, record: SessionRecord, file: Path) -> str:
    """Return the first eight characters of the session's id, with a hash if another file has the same."""

    def beginning(name: str) -> str:
        return re.sub(r"[^a-z0-9]", "", name.lower())[:8] or "session"

    own = beginning(file.stem)
    is_taken = any(beginning(other.stem) == own for other in session_files(home) if other != file)
    return f"{own}{content_hash(f'{record.workspace}/{record.session}')[:6]}" if is_taken else own


def _file_name(name: str) -> str:
    """Return the name if it is a valid file name, else a valid one made from it and a hash."""
    if is_name(name):
        return name
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:60].strip("-") or "unnamed"
    return f"{slug}-{content_hash(name)[:4]}{content_hash(name[::-1])[:4]}"


def nugget_units(home: Path) -> UnitFiles:
    """Return the store as a source of units: a unit for each nugget; keys are `<workspace>/<session>.jsonl`."""

    def read(key: str, file: Path, content: bytes) -> UnitsRead:
        record, problems = read_session_file(file, content)
        # The store is queried by folder, so the folder overrides the workspace named in an imported file.
        record = replace(record, workspace=file.parent.name)
        units = tuple(unit_of(nugget, workspace=record.workspace) for nugget in record.nuggets)
        return units, tuple(replace(problem, path=key) for problem in problems), record

    def files() -> Iterator[tuple[str, Path]]:
        return ((f"{file.parent.name}/{file.name}", file) for file in session_files(home))

    return UnitFiles(name=SourceName.PROVENANCE, files=files, content=lambda key, file: file.read_bytes(), read=read)


def unit_of(nugget: Nugget, *, workspace: str) -> Unit:
    """Return a nugget as a unit, which is found by summary, detail, alternatives and the prompt that it came from.

    Its date is that of its session, not of the extraction.
    """
    texts = (nugget.summary.partition(": ")[2] or nugget.summary, nugget.detail, nugget.source_prompt)
    title, detail, asked = (" ".join(re.findall(r"\w+", text.casefold())) for text in texts)
    is_told = asked in title or len(asked.replace(title, "").split()) < 4 or (asked in detail and detail != asked)
    parts = [
        f"# {nugget.summary}", "" if detail in (title if is_told else asked) else nugget.detail,
        f"Alternatives: {'; '.join(nugget.alternatives)}" if nugget.alternatives else "",
        "" if is_told else f"Asked: {nugget.source_prompt}",
    ]  # fmt: skip
    learned = nugget.session_started or nugget.extracted_at
    return Unit(
        id=nugget.id, source=SourceName.PROVENANCE, type=nugget.type, title=nugget.summary,
        body="\n\n".join(filter(None, parts)), confidence=nugget.confidence, origin=Origin.AI_SESSION,
        scope=replace(nugget.scope, repo=workspace), session=nugget.session, evidence=nugget.evidence,
        alternatives=nugget.alternatives, created=learned.date() if learned else None, stale_after=nugget.stale_after,
    )  # fmt: skip
