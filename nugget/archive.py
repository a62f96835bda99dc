"""The transcript archive: redacted sessions, compressed, in `$NUGGET_HOME/archive/`.

Claude Code deletes its transcripts after 30 days; from here knowledge can be extracted again. A file holds one
session as gzipped JSON lines: a line about the session, then one line an event. Only what redaction let
through is in it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from nugget import spool
from nugget.errors import TranscriptError
from nugget.models import Event, EventKind, Session

FORMAT = 1


def archive_file(home: Path, session_id: str) -> Path:
    """Where the archived session lies; an id that is no plain file name is replaced by a hash of it."""
    plain = re.fullmatch(r"[A-Za-z0-9_-]{1,100}", session_id)
    name = session_id if plain else hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return home / "archive" / f"{name}.jsonl.gz"


def write_archive(home: Path, session: Session) -> Path:
    """Archive a redacted session in place of an earlier archive of it, unless that one already holds it all."""
    file = archive_file(home, session.id)
    with suppress(TranscriptError):
        held = {(event.uuid, event.kind) for event in read_archive(file).events}
        if held.issuperset((event.uuid, event.kind) for event in session.events):
            return file
    header: dict[str, Any] = {"format": FORMAT} | asdict(replace(session, events=()))
    lines = [header, *map(_event_line, session.events)]
    text = "".join(json.dumps(line, ensure_ascii=False, default=datetime.isoformat) + "\n" for line in lines)
    spool.replace(file, gzip.compress(text.encode("utf-8", "replace"), compresslevel=6, mtime=0))
    spool.sync_folder(file.parent)
    return file


def read_archive(file: Path) -> Session:
    """The archived session. Raises TranscriptError when the file is absent, damaged or of a newer format."""
    try:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            header = json.loads(next(lines))
            if header.pop("format") != FORMAT:
                raise TranscriptError(f"{file} was written by a newer Nugget.", hint="Update Nugget.")
            events = tuple(_event(json.loads(line)) for line in lines)
        stamps = {name: _moment(header.get(name)) for name in ("started", "ended")}
        folders = tuple(header.get("folders", ()))
        return Session(**{**header, **stamps, "folders": folders, "events": events})
    except FileNotFoundError as error:
        raise TranscriptError(f"{file} does not exist.") from error
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise TranscriptError(f"{file} is damaged and cannot be read ({error}).") from error


def _event_line(event: Event) -> dict[str, Any]:
    return {name: value for name, value in asdict(event).items() if value not in (None, "")}


def _event(line: dict[str, Any]) -> Event:
    line = {"text": ""} | line
    return Event(**{**line, "kind": EventKind(line["kind"]), "timestamp": _moment(line.get("timestamp"))})


def _moment(value: str | None) -> datetime | None:
    return datetime.fromisoformat(value) if value else None
