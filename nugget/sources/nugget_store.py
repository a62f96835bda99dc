"""The store of provenance: one JSONL file per session, `$NUGGET_HOME/provenance/<workspace>/<session>.jsonl`.

Every line is an object with a `kind`:

- `{"format": 1, "kind": "session", ...}`: the session; the last such line counts.
- `{"kind": "nugget", "id": ...}`: a nugget; of several with one id the last counts.
- `{"kind": "touch", "path": ...}`: a file that the session touched, once a path; of several the last counts.
- `{"kind": "retracted", "nugget": ID}` or `{"kind": "retracted", "touch": PATH}`: takes back what stood before it.

Lines are only ever added: a session that is extracted again adds what is new or different and retracts what it no
longer says, so that reading from the top to the end gives the present state and the file keeps how it came to be.
Missing keys have the defaults of nugget/models/nuggets.py; unknown keys and kinds are skipped. `line_hashes` are one
text, 16 hex digits each. A file is replaced whole (written aside, fsync, rename), under a lock.

Nothing is written unredacted, and nothing read is trusted: a line that cannot be taken is a Problem and is skipped.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from nugget.errors import TranscriptError
from nugget.infra import files
from nugget.infra.workspace import Workspace
from nugget.models import Problem
from nugget.models.nuggets import FileTouch, Nugget, SessionRecord
from nugget.sources import nugget_store_lines as lines
from nugget.sources.records import parse_record, read_lines

MAX_LINE_BYTES = 8 * 1024 * 1024
"""A longer line is a problem; a touch of a file with 100,000 lines needs 1.6 MB."""
_WORKSPACE_FILE = "workspace.json"
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


@dataclass(slots=True)
class _State:
    """State after the lines read so far."""

    session: SessionRecord | None = None
    nuggets: dict[str, Nugget] = field(default_factory=dict)
    touches: dict[str, FileTouch] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def provenance_folder(home: Path, workspace: str) -> Path:
    """Return the folder for the sessions of a workspace, by its identity; it need not exist yet."""
    return home / "provenance" / _file_name(workspace)


def session_file(home: Path, workspace: str, session: str) -> Path:
    """Return the file of one session; an id that cannot be a file name is replaced by one that can."""
    return provenance_folder(home, workspace) / f"{_file_name(session)}.jsonl"


def session_files(home: Path, workspace: str | None = None) -> Iterator[Path]:
    """Yield the files of a workspace's sessions, by default of all workspaces, by name."""
    folder = home / "provenance" if workspace is None else provenance_folder(home, workspace)
    found = sorted(folder.glob("*.jsonl" if workspace is not None else "*/*.jsonl"))
    yield from (file for file in found if not file.name.startswith(".") and file.is_file())


def read_session_file(path: Path) -> tuple[SessionRecord, tuple[Problem, ...]]:
    """Return the session in a file, and the lines that could not be read.

    Without a readable session line, the file's and the folder's names are the session and the workspace. Raises
    TranscriptError when the file cannot be read at all.
    """
    state = _State()
    try:
        with path.open("rb") as file:
            _read_lines(file, str(path), state)
    except OSError as error:
        raise TranscriptError(f"{path} cannot be read ({error.strerror or error}).") from error
    record = state.session
    if record is None:
        record = SessionRecord(session=path.stem, workspace=path.parent.name)
        if not state.problems:
            state.problems.append(Problem(path=str(path), reason="no line tells of the session"))
    found = replace(record, nuggets=tuple(state.nuggets.values()), touches=tuple(state.touches.values()))
    return found, tuple(state.problems)


def _read_lines(stream: BinaryIO, name: str, state: _State) -> None:
    """Add what the lines of an opened file say to `state`; `name` is for its problems."""
    for number, (_, line) in enumerate(read_lines(stream, limit=MAX_LINE_BYTES), 1):
        if line is None:
            state.problems.append(Problem(path=name, line=number, reason="the line is too long"))
        elif line.strip():
            try:
                _take(line, state)
            except lines.Unreadable as error:
                state.problems.append(Problem(path=name, line=number, reason=str(error)))


def write_session(home: Path, record: SessionRecord, *, allow: Sequence[re.Pattern[str]] = ()) -> Path:
    """Write a session to the store and return its file.

    Nuggets without an id get one; those that the file has already, by session, type, summary and scope, keep theirs.
    `allow` are the texts that are no secrets (`redaction.allow`). Raises OSError when it cannot be written: the file
    is then as it was.
    """
    file = session_file(home, record.workspace, record.session)
    record = _redacted(record, allow)
    with files.locked(home / "locks" / f"provenance-{file.parent.name}.lock"):
        known, old = _known(file)
        record = _numbered(home, record, known, file)
        added = _difference(known, record, is_new=not old)
        if added:
            prefix = b"\n" if old and not old.endswith(b"\n") else b""
            files.replace(file, old + prefix + b"".join(added))
            files.sync_folder(file.parent)
    return file


def note_workspace(home: Path, workspace: Workspace) -> None:
    """Note where a workspace lies (`workspace.json` in its folder), so that it is known when its folder is gone.

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
    described = {"format": lines.FORMAT, "identity": workspace.identity, "name": workspace.name}
    content = json.dumps(described | {"roots": [*noted, place]}, ensure_ascii=False)
    files.replace(folder / _WORKSPACE_FILE, content.encode("utf-8", "replace"))


def known_workspaces(home: Path) -> dict[str, str]:
    """Return the folders that workspaces were seen in, with the identity of each."""
    files = sorted((home / "provenance").glob(f"*/{_WORKSPACE_FILE}"))
    return {place: file.parent.name for file in files for place in _noted(file.parent)}


def _noted(folder: Path) -> list[str]:
    try:
        roots = (parse_record((folder / _WORKSPACE_FILE).read_bytes()) or {}).get("roots")
    except OSError:
        return []
    return [root for root in roots if isinstance(root, str)] if isinstance(roots, list) else []


def natural_key(nugget: Nugget) -> tuple[str, str, str, str, str]:
    """Return the identity of a nugget on any machine: session, type, summary, path and symbol."""
    path, symbol = nugget.scope.path or "", nugget.scope.symbol or ""
    return nugget.session, nugget.type, " ".join(nugget.summary.split()).casefold(), path, symbol


def _take(line: bytes, state: _State) -> None:
    values = lines.parse(line)
    kind = values.get("kind")
    if kind == "session":
        state.session = lines.read_record(values)
    elif kind == "nugget":
        nugget = lines.read_nugget(values)
        state.nuggets[nugget.id] = nugget
    elif kind == "touch":
        touch = lines.read_touch(values)
        state.touches[touch.path] = touch
    elif kind == "retracted":
        state.nuggets.pop(str(values.get("nugget")), None)
        state.touches.pop(str(values.get("touch")), None)


def _known(file: Path) -> tuple[SessionRecord | None, bytes]:
    """Return the session in the file and its bytes; None and nothing if there is no file."""
    try:
        old = file.read_bytes()
    except FileNotFoundError:
        return None, b""
    return read_session_file(file)[0], old


def _difference(known: SessionRecord | None, record: SessionRecord, *, is_new: bool) -> list[bytes]:
    """Return the lines that turn a file with `known` into one with `record`."""
    before = known or SessionRecord(session=record.session, workspace=record.workspace)
    old_nuggets = {nugget.id: nugget for nugget in before.nuggets}
    old_touches = {touch.path: touch for touch in before.touches}
    new_nuggets = {nugget.id: nugget for nugget in record.nuggets}
    new_touches = {touch.path: touch for touch in record.touches}
    added: list[dict[str, Any]] = []
    if is_new or replace(before, nuggets=(), touches=()) != replace(record, nuggets=(), touches=()):
        added.append(lines.record_line(record))
    added += [{"kind": "retracted", "nugget": name} for name in old_nuggets if name not in new_nuggets]
    added += [{"kind": "retracted", "touch": path} for path in old_touches if path not in new_touches]
    added += [
        lines.nugget_line(one) for one in new_nuggets.values() if not _says_the_same(old_nuggets.get(one.id), one)
    ]
    added += [lines.touch_line(one) for one in new_touches.values() if old_touches.get(one.path) != one]
    return [json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n" for line in added]


def _says_the_same(known: Nugget | None, nugget: Nugget) -> bool:
    """Return whether only the moment of extraction differs."""
    return known is not None and replace(known, extracted_at=nugget.extracted_at) == nugget


def _numbered(home: Path, record: SessionRecord, known: SessionRecord | None, file: Path) -> SessionRecord:
    """Give each nugget an id: the one that the store knows it by, its own, or the next number."""
    earlier = {natural_key(nugget): nugget.id for nugget in (known.nuggets if known else ())}
    used = {nugget.id for nugget in record.nuggets if nugget.id} | set(earlier.values())
    prefix = next((name.rpartition("-")[0] for name in earlier.values()), "") or _id_prefix(home, record, file)
    last = max((int(name.rpartition("-")[2]) for name in used if name.rpartition("-")[2].isdecimal()), default=0)
    numbered: dict[str, Nugget] = {}
    for nugget in record.nuggets:
        name = earlier.get(natural_key(nugget)) or nugget.id
        if not name or name in numbered:
            last += 1
            name = f"{prefix}-{last}"
        numbered[name] = replace(nugget, id=name)
    return replace(record, nuggets=tuple(numbered.values()))


def _id_prefix(home: Path, record: SessionRecord, file: Path) -> str:
    """Return the first eight characters of the session's id, more if another session begins with the same."""
    others = [_plain(other.stem) for other in session_files(home) if other != file]
    own = _plain(file.stem)
    same = own in others  # The session is kept for another workspace too.
    length = next((n for n in range(8, len(own) + 4, 4) if not any(other[:n] == own[:n] for other in others)), len(own))
    return f"{own[:8]}{_short_hash(record.workspace)}" if same else own[:length]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower()) or "session"


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:4]


def _file_name(name: str) -> str:
    """Return the name itself if it can be a file's, else one made of it with a hash."""
    if _FILE_NAME.fullmatch(name):
        return name
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:60].strip("-") or "unnamed"
    return f"{slug}-{_short_hash(name)}{_short_hash(name[::-1])}"


def _redacted(record: SessionRecord, allow: Sequence[re.Pattern[str]]) -> SessionRecord:
    """Return the record with all of its texts redacted."""
    from nugget.redaction import redact  # readers, who are many, need not load its rules

    def clean(text: str) -> str:
        return redact(text, allow=allow).text if text else text

    def clean_or_none(text: str | None) -> str | None:
        return clean(text) if text else None

    nuggets = [
        replace(
            nugget, summary=clean(nugget.summary), detail=clean(nugget.detail),
            source_prompt=clean(nugget.source_prompt), alternatives=tuple(map(clean, nugget.alternatives)),
            scope=replace(
                nugget.scope, path=clean_or_none(nugget.scope.path), symbol=clean_or_none(nugget.scope.symbol)
            ),
            evidence=tuple(replace(one, quote=clean(one.quote)) for one in nugget.evidence),
        )
        for nugget in record.nuggets
    ]  # fmt: skip
    touches = [
        replace(touch, path=clean(touch.path), previous_path=clean_or_none(touch.previous_path))
        for touch in record.touches
    ]
    return replace(
        record, title=clean(record.title), first_prompt=clean(record.first_prompt), branch=clean_or_none(record.branch),
        transcript=clean_or_none(record.transcript), nuggets=tuple(nuggets), touches=tuple(touches),
    )  # fmt: skip
