"""A team's server: its spaces, their tokens, and the sessions that members send.

A space is one of the server's brains, by its name in `brains.folders`. Tokens are kept as hashes in
`$NUGGET_HOME/tokens.json`. A sent session enters the same archive and queue as a session of this machine.
"""

from __future__ import annotations

import gzip
import json
import secrets
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from nugget.capture import ledger, read_redacted
from nugget.capture import queue as queue
from nugget.config import Environment, Settings, load_settings
from nugget.errors import ConflictError, NuggetError, TranscriptError, UsageError
from nugget.infra import files, http_client, remotes
from nugget.infra.http_client import is_private as is_private
from nugget.redaction import redact_session, rules_stamp
from nugget.sources.sessions import archive_file, read_archive, write_archive
from nugget.text import content_hash, is_name, printable
from nugget.upkeep import usable_brains as usable_brains

TOKEN_PREFIX = "nug_"
READ, WRITE = "read", "write"
MAX_SESSION_BYTES, MAX_UNPACKED_BYTES = 64_000_000, 128_000_000
_PROVIDER_TIMEOUT_S = 5.0
MAX_DELIVERIES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token without its text: its identity, the right (`read` or `write`) in each space, and its last day."""

    id: str
    identity: str
    spaces: Mapping[str, str]
    created: str
    expires: str | None
    hash: str


def parse_rights(values: Sequence[str]) -> dict[str, str]:
    """Parse rights such as `NAME` or `NAME:write` into the right in each space. Raises UsageError."""
    rights = {}
    for value in values:
        name, _, right = value.partition(":")
        if not name or (right or READ) not in (READ, WRITE):
            raise UsageError(f"{value!r} does not name a right.", hint="Write it as NAME:read or NAME:write.")
        rights[name] = right or READ
    return rights


def make_token(home: Path, identity: str, rights: Mapping[str, str], *, days: int | None, now: datetime) -> str:
    """Create a token, store its hash and return its text, which cannot be shown again. Raises UsageError."""
    if not is_name(identity, signs="._@+-"):
        raise UsageError(f"{printable(identity)!r} is not a name for an identity.", hint="Use a login or an address.")
    if not rights:
        raise UsageError("A token needs a space.", hint="Name one with --space NAME:read.")
    # It is random, so its hash needs neither a salt nor a slow function.
    text, last = TOKEN_PREFIX + secrets.token_urlsafe(32), now + timedelta(days=days) if days else None
    made = Token(
        id=secrets.token_hex(4), identity=identity, spaces=dict(rights), created=now.isoformat(timespec="seconds"),
        expires=last.isoformat(timespec="seconds") if last else None, hash=content_hash(text),
    )  # fmt: skip
    with files.locked(home / "locks" / "tokens.lock"):
        _write_tokens(home, [*tokens(home), made])
    return text


def revoke_token(home: Path, token_id: str) -> Token:
    """Delete a token. Raises UsageError for an unknown id."""
    with files.locked(home / "locks" / "tokens.lock"):
        known = tokens(home)
        gone = next((token for token in known if token.id == token_id), None)
        if gone is None:
            raise UsageError(f"There is no token {printable(token_id)}.", hint="`nugget token list` shows them.")
        _write_tokens(home, [token for token in known if token is not gone])
    return gone


def tokens(home: Path) -> list[Token]:
    """Return the stored tokens. Raises NuggetError if their file is damaged."""
    file = home / "tokens.json"
    try:
        return [Token(**one) for one in json.loads(file.read_text("utf-8"))["tokens"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise NuggetError(f"{file} cannot be read ({error}).", hint="Restore it from a backup.") from error


def token_of(home: Path, text: str, *, now: datetime) -> Token | None:
    """Return the valid token with this text; None if it is unknown or has expired."""
    wanted = content_hash(text)
    found = next((token for token in tokens(home) if secrets.compare_digest(token.hash, wanted)), None)
    is_over = found is not None and found.expires is not None and datetime.fromisoformat(found.expires) <= now
    return None if is_over else found


def _write_tokens(home: Path, kept: Sequence[Token]) -> None:
    files.replace(home / "tokens.json", json.dumps({"version": 1, "tokens": [*map(asdict, kept)]}, indent=1).encode())


def spaces_of_repository(environment: Environment, brains: Mapping[str, Path], repository: str) -> list[str]:
    """Return the names of the brains whose remote is this GitHub repository (`owner/name`)."""
    found = []
    for name, brain in brains.items():
        remote = remotes.find_remote(brain)
        known = remotes.repository_name(remote.url, api_url=environment.github_api_url) if remote else None
        if known and known.lower() == repository.lower():
            found.append(name)
    return found


def note_delivery(home: Path, signature: str) -> bool:
    """Remember a webhook delivery by its signature; return False if it was seen before."""
    file = home / "ledger" / "deliveries.json"
    with files.locked(home / "locks" / "deliveries.lock"):
        seen: list[str] = []
        with suppress(OSError, ValueError, TypeError):
            seen = [str(one) for one in json.loads(file.read_text("utf-8"))]
        if signature in seen:
            return False
        files.replace(file, json.dumps([*seen, signature][-MAX_DELIVERIES:]).encode())
    return True


def published(url: str, key: str) -> dict[str, Any]:
    """Return what an OpenID provider publishes at an address, an object with this key. Raises NuggetError."""
    status, found = _reply_of(url, timeout_s=_PROVIDER_TIMEOUT_S)
    if status != 200 or not isinstance(found, dict) or key not in found:
        raise NuggetError(f"{url} does not publish `{key}` (HTTP {status}).")
    return found


def _reply_of(
    url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, *, timeout_s: float = 60.0
) -> tuple[int, Any]:
    """Send a request; return the status and the JSON, None for other replies. Raises NuggetError without a reply."""
    try:
        status, reply = http_client.send(url, body, headers or {}, until=time.monotonic() + timeout_s)
    except (OSError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise NuggetError(f"{url.partition('?')[0]} cannot be reached ({reason}).", hint="Try again.") from error
    with suppress(ValueError, RecursionError):
        return status, json.loads(reply)
    return status, None


def take_session(environment: Environment, brain: Path, upload: Path, *, now: datetime) -> str:
    """Redact and archive a session that a member sent, queue it for a brain, and return its id.

    Raises UsageError if the file is not an archived session, ConflictError if another session of this id is kept.
    """
    home, settings = environment.home, load_settings(environment, brain)
    try:
        with gzip.open(upload) as unpacked:
            unpacked.seek(MAX_UNPACKED_BYTES)  # or to the end
            if unpacked.read(1):
                raise UsageError(f"The session is larger than {MAX_UNPACKED_BYTES // 1_000_000:,} MB.")
        session = read_archive(upload)
    except (TranscriptError, OSError, EOFError, zlib.error) as error:
        raise UsageError("This is not an archived session.", hint="`nugget capture` sends sessions.") from error
    if not is_name(session.id, signs="_-") or not session.events:
        raise UsageError("This session has no events, or an invalid id.")
    session, _ = redact_session(session, settings=settings)
    with suppress(TranscriptError):
        held = {(event.uuid, event.kind, event.text) for event in read_archive(archive_file(home, session.id)).events}
        if not held <= {(event.uuid, event.kind, event.text) for event in session.events}:
            raise ConflictError(f"Another session {session.id} was sent before; this one does not continue it.")
    # Named as a file beside its archive, so that no session of the server itself is taken for it.
    kept = write_archive(home, session, stamps=[rules_stamp(settings)]).with_name(session.id)
    queue.add(home, now=now, session=session.id, transcript=str(kept), brain=str(brain))
    files.start_worker(home)
    return session.id


def send_session(transcript: Path, environment: Environment, settings: Settings) -> str | None:
    """Send a redacted session to the team's server; return the outcome, None if `capture.server` is not set.

    Raises NuggetError if the server cannot be reached or refuses it, and TranscriptError.
    """
    if (server := settings.capture_server) is None:
        return None
    address, found, space = server.rstrip("/").rpartition("/s/")
    token = environment.variables.get("NUGGET_TEAM_TOKEN")
    if not (found and is_private(address)) or "@" in address:  # a password would be shown with failures
        raise UsageError("`capture.server` is not the address of a space.", hint="Write it as https://HOST/s/SPACE.")
    if not token:
        raise UsageError("`capture.server` needs a token.", hint="Set NUGGET_TEAM_TOKEN; ask whoever runs the server.")
    _, session, _ = read_redacted(transcript, environment.home, settings)
    if not session.events:
        return "the session is excluded or empty"
    archive = write_archive(environment.home, session, stamps=[rules_stamp(settings)])
    headers = {"authorization": f"Bearer {token}", "content-type": "application/gzip"}
    status, reply = _reply_of(f"{address}/v1/sessions?{urlencode({'space': space})}", archive.read_bytes(), headers)
    if status != 202:
        why = f"HTTP {status}"
        with suppress(LookupError, TypeError):
            why = printable(str(reply["error"]["message"]))[:300]
        raise NuggetError(f"{address} did not accept the session: {why}")
    noted = environment.home / "ledger" / ledger.CAPTURES
    files.append_line(noted, {"event": "sent", "session": session.id}, once=True)
    return f"sent to the space {space} of {address}"
