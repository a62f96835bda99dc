"""Read the texts of passages from where they stand, redacted, and what they are called.

A hit whose text is nowhere any more (the client deleted the transcript since the last sync) has no text, and is left
out by whoever asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from nugget.errors import NuggetError
from nugget.history import finding, reading
from nugget.history.assembly import Clean
from nugget.history.expressions import Probe
from nugget.history.values import Place, Role, only_span, unpack_place
from nugget.index.history import HistoryFile
from nugget.index.passages import Candidate, StoredPassage
from nugget.models import Event, Session
from nugget.sources import sessions
from nugget.sources import shell_logs as shell


def read_session_of(file: HistoryFile) -> Session:
    """The whole session in a file that is not read by lines. Raises TranscriptError."""
    path = Path(file.path.removesuffix(f"::{file.session}"))
    if file.reader == finding.ARCHIVE:
        from nugget.sources.archive import read_archive

        return read_archive(path)
    return sessions.read_any(
        sessions.SessionFile(
            path=path, agent=file.agent, id=file.session, mtime=file.mtime_ns / 1e9, size=max(0, file.size)
        )
    )


_MOST_OPEN = 32
"""A search may look into thousands of files, and some systems let a process have no more than 256 open."""


class Texts:
    """The texts of passages. The last files are kept open, and sessions that had to be read whole, while it is used."""

    def __init__(self) -> None:
        self._files: dict[str, BinaryIO | None] = {}
        self._sessions: dict[str, Sequence[Event]] = {}

    def __enter__(self) -> Texts:
        return self

    def __exit__(self, *_: object) -> None:
        while self._files:
            self._close_first()

    def may_hold(self, passage: Candidate, probe: Probe) -> bool:
        """Whether a passage may hold what is wanted: False where `probe` (of `expressions.probe`) denies it.

        Only said of what stands in one line of a transcript; it is far faster than reading the text.
        """
        if passage.reader != finding.LINES or passage.role == Role.MESSAGE:
            return True
        span = only_span(passage.place)
        file = self._open(passage.path, passage.reader) if span else None
        if span is None or file is None:
            return True
        try:
            return reading.line_may_hold(file, span, probe)
        except (OSError, ValueError):
            return True

    def read(self, passage: StoredPassage, clean: Clean, *, is_for_ranking: bool = False) -> tuple[str, str]:
        """The (text, speaker) of a passage; an empty text where it is nowhere any more.

        For ranking, secrets are left in where that is faster, so that the text must be redacted before it is shown.
        A piece of a longer text is always cut from the redacted text, or half a secret could stand at its border.
        """
        with suppress(OSError, NuggetError, ValueError):
            place = unpack_place(passage.place)
            is_piece = bool(place.stop)
            return self._read(
                passage, place, Role(passage.role), _as_it_is if is_for_ranking and not is_piece else clean
            )
        return "", ""

    def _read(self, passage: StoredPassage, place: Place, role: Role, clean: Clean) -> tuple[str, str]:
        if passage.reader in (finding.EVENTS, finding.ARCHIVE):
            return reading.text_of_events(self._events(passage), place, role, clean), passage.subagent
        file = self._open(passage.path, passage.reader)
        if file is None:
            return "", ""
        if passage.reader == finding.SHELL:
            return reading.text_of_shell(
                file, place, clean, of_events=Path(passage.path).name == shell.EVENTS
            ), passage.subagent
        if role is not Role.MESSAGE:
            return reading.text_of_lines(file, place, role, clean), passage.subagent
        message = reading.message_at(file, place, of_channel=passage.reader == finding.CHANNEL)
        return (clean(message.shown), clean(message.sender)) if message else ("", "")

    def _open(self, path: str, reader: str) -> BinaryIO | None:
        if path not in self._files:
            if len(self._files) >= _MOST_OPEN:
                self._close_first()
            try:
                # What is read span by span needs no buffer; a log is read to the ends of its lines.
                self._files[path] = open(path, "rb", buffering=-1 if reader == finding.SHELL else 0)  # noqa: PTH123, SIM115
            except OSError:
                self._files[path] = None
        return self._files[path]

    def _close_first(self) -> None:
        file = self._files.pop(next(iter(self._files)))
        if file:
            file.close()

    def _events(self, passage: StoredPassage) -> Sequence[Event]:
        if passage.path not in self._sessions:
            file = HistoryFile(path=passage.path, reader=passage.reader, agent=passage.agent, session=passage.session)
            self._sessions[passage.path] = read_session_of(file).events
        return self._sessions[passage.path]


def _as_it_is(text: str) -> str:
    return text
