"""The transcript archive: redacted sessions, compressed, in `$NUGGET_HOME/archive/`.

Claude Code deletes its transcripts after 30 days; from here knowledge can be extracted again. A file holds one
session as gzipped JSON lines: a line about the session, then one line an event. Only what redaction let
through is in it, and its first line names the rules it was redacted by: `redact_again` applies stricter ones later.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from nugget.config import Settings
from nugget.errors import TranscriptError
from nugget.infra import files
from nugget.models import Event, EventKind, Session, Speaker, SpeechOrigin
from nugget.redaction import is_excluded_project, redact_session, rules_stamp
from nugget.sources.files import ARCHIVE_ENDING, archived_sessions

FORMAT = 1
MAX_STAMPS = 8
"""Several brains share an archive, each with rules of its own."""
MAX_HEADER_CHARS = 1_000_000


def archive_file(home: Path, session_id: str) -> Path:
    """Return the path of an archived session; an id that is not a plain file name is replaced by its hash."""
    plain = re.fullmatch(r"[A-Za-z0-9_-]{1,100}", session_id)
    name = session_id if plain else hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return home / "archive" / f"{name}{ARCHIVE_ENDING}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Redone:
    """Counts of `redact_again`: sessions looked at, rewritten, removed as excluded, and files that cannot be read."""

    looked_at: int
    rewritten: int
    removed: int
    unreadable: tuple[Path, ...]


def write_archive(home: Path, session: Session, *, stamps: Sequence[str] = ()) -> Path:
    """Archive a redacted session in place of an earlier archive of it, unless that one already holds it all.

    `stamps` name the rules that it was redacted by (`redaction.rules_stamp`).
    """
    file = archive_file(home, session.id)
    with _alone(home):
        with suppress(TranscriptError):
            held = {(event.uuid, event.kind) for event in read_archive(file).events}
            if held.issuperset((event.uuid, event.kind) for event in session.events):
                return file
        _write(file, session, stamps)
    return file


def outdated(home: Path, settings: Settings) -> list[Path]:
    """Return the archived sessions that were not redacted by the rules of today. Reads the first line of each only."""
    stamp = rules_stamp(settings)
    return [file for file in archived_sessions(home).values() if stamp not in _stamps(file)]


def redact_again(home: Path, settings: Settings) -> Redone:
    """Redact what `outdated` names by the rules of today; sessions of excluded projects are removed.

    What an earlier rule took out stays out. Each file is replaced as a whole, so this can be stopped at any time.
    """
    stamp, looked_at, rewritten, removed = rules_stamp(settings), 0, 0, 0
    unreadable: list[Path] = []
    for file in outdated(home, settings):
        looked_at += 1
        with _alone(home):
            try:
                session = read_archive(file)
                if is_excluded_project(session, settings=settings):
                    file.unlink()
                    removed += 1
                    continue
                cleaned, _ = redact_session(session, settings=settings)
                _write(file, cleaned, [*_stamps(file)[-MAX_STAMPS + 1 :], stamp])
                rewritten += cleaned != session
            except Exception:
                unreadable.append(file)
    return Redone(looked_at=looked_at, rewritten=rewritten, removed=removed, unreadable=tuple(unreadable))


def _alone(home: Path) -> AbstractContextManager[None]:
    return files.locked(home / "locks" / "archive.lock")


def _stamps(file: Path) -> list[str]:
    """Return the stamps in an archive's first line; none in one that cannot be read."""
    try:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            named = json.loads(lines.readline(MAX_HEADER_CHARS)).get("redacted_by")
    except (OSError, EOFError, zlib.error, ValueError, AttributeError):
        return []
    return [str(stamp) for stamp in named] if isinstance(named, list) else []


def _write(file: Path, session: Session, stamps: Sequence[str]) -> None:
    header: dict[str, Any] = {"format": FORMAT, "redacted_by": list(stamps)} | asdict(replace(session, events=()))
    lines = [header, *map(_event_line, session.events)]
    text = "".join(json.dumps(line, ensure_ascii=False, default=datetime.isoformat) + "\n" for line in lines)
    files.replace(file, gzip.compress(text.encode("utf-8", "replace"), compresslevel=6, mtime=0))
    files.sync_folder(file.parent)


def read_archive(file: Path) -> Session:
    """Return the archived session. Raises TranscriptError when the file is absent, damaged or of a newer format."""
    try:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            header = json.loads(next(lines))
            if header.pop("format") != FORMAT:
                raise TranscriptError(f"{file} was written by a newer Nugget.", hint="Update Nugget.")
            header.pop("redacted_by", None)
            events = tuple(_event(json.loads(line)) for line in lines)
        stamps = {name: _moment(header.get(name)) for name in ("started", "ended")}
        folders = tuple(header.get("folders", ()))
        return Session(**{**header, **stamps, "folders": folders, "events": events})
    except FileNotFoundError as error:
        raise TranscriptError(f"{file} does not exist.") from error
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise TranscriptError(f"{file} is damaged and cannot be read ({error}).") from error


def _event_line(event: Event) -> dict[str, Any]:
    # An empty `before` says that the file was empty, none that nobody knows.
    return {
        name: value
        for name, value in asdict(event).items()
        if value is not None and (value != "" or name in ("before", "after"))
    }


def _event(line: dict[str, Any]) -> Event:
    line = {"text": ""} | line
    said_by = {
        "speaker": Speaker(line.get("speaker", Speaker.AGENT)),
        "origin": SpeechOrigin(line.get("origin", SpeechOrigin.WRITTEN)),
    }
    return Event(**{**line, **said_by, "kind": EventKind(line["kind"]), "timestamp": _moment(line.get("timestamp"))})


def _moment(value: str | None) -> datetime | None:
    return datetime.fromisoformat(value) if value else None
