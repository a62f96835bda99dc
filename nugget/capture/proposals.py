"""Texts of a proposal: the branch name, the title, the body of the pull request, the trailers of the commit.

The commit's message is the title, the body and the trailers, so that a proposal can be listed, shown and opened
as a pull request later from the repository alone. What comes from a session is hostile: it stands in code
spans or is escaped, so that it mentions nobody, closes no issue, loads no image and forges no trailer.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from nugget.capture.compare import FileChange
from nugget.models import Origin, Session, Speaker, Unit
from nugget.models.speech import said_how
from nugget.text import clean, shorten, slugify

BRANCH_PREFIX = "nugget/"
"""What the names of all proposals start with."""
MAX_QUOTE_CHARS = 300
MAX_DROPPED = 20
MAX_FLAGS = 12
_SHOWN_CHARS = 120
_PROGRAMS = (
    r"(?:sudo|curl|wget|bash|sh|zsh|eval|python3?|node|npx|pip3?|pipx|uvx?|npm|pnpm|yarn|bun|brew|apt(?:-get)?|dnf|yum|apk"
    r"|pacman|snap|gem|cargo|go|composer|dotnet|docker|podman|kubectl|helm|terraform|git|ssh|scp|rsync|chmod|chown|rm|dd|nc"
    r"|powershell|pwsh|iex|iwr|make|claude|codex|gemini)"
)
_URL = re.compile(r"(?:\b[a-z][a-z0-9+.-]{1,20}://|\bwww\.|\bgit@)[^\s<>\"'`)\]|]{1,500}", re.IGNORECASE)
_PIPED = re.compile(
    r"[^\n`]{0,200}\|\s*(?:sudo\s+)?(?:ba|z|da|fi)?sh\b[^\n`]{0,60}|\b(?:iex|eval)\b[^\n`]{1,200}", re.IGNORECASE
)
_INSTALL = re.compile(
    r"\b(?:(?:pip3?|pipx|uv|npm|pnpm|yarn|bun|brew|apt(?:-get)?|dnf|yum|apk|snap|gem|cargo|go|composer|helm|code|conda|mamba)"
    r"(?: \w+)? (?:install|add|i|get)\b|(?:npx|uvx|pipx run|docker run|docker pull|go run) )[^\n`]{0,200}",
    re.IGNORECASE,
)
_CODE = re.compile(r"`([^`\n]{2,400})`|^(?: {4}|\t|[$%] )\s*(.{2,400})$", re.MULTILINE)
_FENCED = re.compile(r"^(?:```|~~~)[^\n]*\n(.*?)^(?:```|~~~)", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(rf"^\s*(?:[$%#>] )?(?:\w+=\S+ )*{_PROGRAMS}(?=\s|$).*")

_TRAILERS = ("Nugget-Import", "Nugget-Session", "Nugget-Records", "Nugget-Method")
_MARKUP = re.compile(r"([\\`*_{}\[\]<>|~!$])")
_LINKING = re.compile(r"([@#])(?=\w)|(?<=:)(?=//)|(?<=\bwww)(?=\.)|(?<=\bGH)(?=-\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedMessage:
    """A proposal's commit message, taken apart."""

    title: str
    body: str
    trailers: Mapping[str, str]


def branch_name(session: Session, moment: datetime) -> str:
    """`nugget/session-<YYYYmmdd-HHMMSS>-<short id>`, in UTC, so that it is the same wherever it is made."""
    plain = re.fullmatch(r"([0-9a-f]{8})-[0-9a-f-]{27}", session.id)
    short = plain[1] if plain else hashlib.sha256(session.id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{BRANCH_PREFIX}session-{moment.astimezone(UTC):%Y%m%d-%H%M%S}-{short}"


def import_branch_name(name: str, moment: datetime) -> str:
    """`nugget/import-<YYYYmmdd-HHMMSS>-<name>` for what is imported from a folder or file of this name."""
    return f"{BRANCH_PREFIX}import-{moment.astimezone(UTC):%Y%m%d-%H%M%S}-{slugify(name, max_chars=30)}"


def title(moment: datetime) -> str:
    """`Knowledge from session <date> <time>`."""
    return f"Knowledge from session {moment:%Y-%m-%d %H:%M}"


def records_trailer(keys: Sequence[str]) -> str:
    """Return the trailer that ties a commit to its transcript records: their number and a digest."""
    return f"Nugget-Records: {len(keys)} {hashlib.sha256(' '.join(keys).encode()).hexdigest()[:16]}"


def body(
    session: Session,
    changes: Sequence[FileChange],
    *,
    branch: str,
    summary: str,
    dropped: Sequence[str],
    redacted: Mapping[str, int],
    method: str,
    usd: float,
) -> str:
    """Return the reviewer's text: summary, table of files, what to look at, evidence, how to edit or reject."""
    opening = [_opening(session, changes), inline(summary, max_chars=600) if summary else ""]
    closing = f"Extraction: {_code(method)}. Redacted: {_kinds(redacted)}. Cost: ${usd:.4f}."
    return _body([*opening, *_parts(changes, dropped), closing, _how_to(branch)])


def import_message(
    title_: str, name: str, changes: Sequence[FileChange], *, branch: str, dropped: Sequence[str],
    redacted: Mapping[str, int],
) -> str:  # fmt: skip
    """Return the whole commit message of an import from a folder or file of this name."""
    files = "file" if len(changes) == 1 else "files"
    opening = f"{len(changes)} {files} imported from `{_code(name)}`, each with the file and line that it came from."
    closing = f"Redacted: {_kinds(redacted)}."
    said = _body([opening, *_parts(changes, dropped), closing, _how_to(branch)])
    return f"{title_}\n\n{said}\n\nNugget-Import: {_token(name)}\nNugget-Method: import\n"


def promotion_branch_name(nugget: str, moment: datetime) -> str:
    """`nugget/promotion-<YYYYmmdd-HHMMSS>-<nugget>` for a nugget, by its id, that is to become a unit."""
    return f"{BRANCH_PREFIX}promotion-{moment.astimezone(UTC):%Y%m%d-%H%M%S}-{slugify(nugget, max_chars=30)}"


def promotion_message(
    title_: str, nugget: str, session: str, changes: Sequence[FileChange], *, branch: str, dropped: Sequence[str]
) -> str:
    """Return the whole commit message of a nugget of a session that is to become a unit."""
    opening = f"The nugget `{_code(nugget)}`, learned in session `{_code(session)}`, as a unit."
    said = _body([opening, *_parts(changes, dropped), _how_to(branch)])
    return f"{title_}\n\n{said}\n\nNugget-Session: {_token(session)}\nNugget-Method: promotion\n"


def _body(parts: Sequence[str]) -> str:
    return "\n\n".join(part for part in parts if part)


def _parts(changes: Sequence[FileChange], dropped: Sequence[str]) -> list[str]:
    """Table of files, what to look at, evidence, what was left out."""
    parts = [_table(changes)]
    noted = [
        f"- `{_code(change.path)}`: {inline(note)}"
        for change in changes
        for note in (*filter(None, [change.note]), *flags_of(change.unit, before=change.before, after=change.text))
    ]
    if noted:
        parts.append("### Look at these\n\n" + "\n".join(noted))
    parts.append("### Evidence\n\n" + "\n\n".join(_evidence(change) for change in changes))
    if dropped:
        shown = [f"- {inline(reason, max_chars=200)}" for reason in dropped[:MAX_DROPPED]]
        more = [f"- and {len(dropped) - MAX_DROPPED} more"] if len(dropped) > MAX_DROPPED else []
        parts.append("### Left out\n\n" + "\n".join(shown + more))
    return parts


def _kinds(redacted: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {_code(kind)}" for kind, count in sorted(redacted.items())) or "nothing"


def message(title_: str, body_: str, *, session: Session, keys: Sequence[str], method: str) -> str:
    """Return the whole commit message."""
    trailers = [f"Nugget-Session: {_token(session.id)}", records_trailer(keys), f"Nugget-Method: {_token(method)}"]
    return f"{title_}\n\n{body_}\n\n" + "\n".join(trailers) + "\n"


def parse_message(text: str) -> ParsedMessage:
    """Title, body and trailers of a proposal's commit message; a person may have reworded all but the trailers."""
    first, _, rest = text.strip().partition("\n")
    lines = rest.strip().split("\n")
    trailers: dict[str, str] = {}
    while lines and (found := re.fullmatch(r"(Nugget-[A-Za-z]+): (.*)", lines[-1])):
        if found[1] in _TRAILERS:
            trailers.setdefault(found[1], found[2])
        lines.pop()
    return ParsedMessage(title=first.strip(), body="\n".join(lines).strip(), trailers=trailers)


def inline(text: str | None, *, max_chars: int = 300) -> str:
    """Return one line of a session's text as harmless markdown."""
    return _unlinked(_MARKUP.sub(r"\\\1", shorten(_printable(text or ""), max_chars)))


def _opening(session: Session, changes: Sequence[FileChange]) -> str:
    new = sum(change.is_new for change in changes)
    edited = len(changes) - new
    counts = [f"{new} new" if new else "", f"{edited} edited" if edited else ""]
    where = f" in `{_code((session.cwd or '').rstrip('/').rpartition('/')[2])}`" if session.cwd else ""
    about = f" ({inline(session.title, max_chars=80)})" if session.title else ""
    files = "file" if len(changes) == 1 else "files"
    return f"{len(changes)} {files} from a session{where}{about}: {', '.join(filter(None, counts))}."


def _table(changes: Sequence[FileChange]) -> str:
    rows = ["| file | type | domain | confidence | why |", "|---|---|---|---|---|"]
    for change in changes:
        unit = change.unit
        kind = "" if change.is_new else " (edited)"
        cells = [f"`{_code(change.path)}`{kind}", unit.type, inline(unit.domain), f"{unit.confidence:.2f}"]
        rows.append("| " + " | ".join([*cells, inline(change.reason, max_chars=160)]) + " |")
    return "\n".join(rows)


def _evidence(change: FileChange) -> str:
    quotes = [
        f"> {said_how(evidence.speaker, evidence.origin)}: `{_code(shorten(evidence.quote, MAX_QUOTE_CHARS))}`"
        for evidence in change.unit.evidence
    ]
    if change.unit.origin is Origin.IMPORTED:
        quotes += [f"> from `{_code(evidence.session)}`" for evidence in change.unit.evidence]
    return f"**{inline(change.unit.title)}**\n\n" + "\n>\n".join(quotes or ["> (no quote)"])


def _how_to(branch: str) -> str:
    return (
        "### How to edit or reject\n\n"
        f"In a terminal: `nugget review show {branch}`, then `accept`, `accept --unit ID` for single files, or "
        "`reject`. In a pull request: edit the files there, delete what you do not want, merge what is right; "
        "close it to reject everything. What was rejected is not proposed again."
    )


def _code(text: str) -> str:
    """Text for within a code span: one line, no backtick, no cell border."""
    return _unlinked(" ".join(_printable(text).replace("`", "'").replace("|", "\u2502").split()))


def _unlinked(text: str) -> str:
    """Put a word joiner after @ and #, and inside ://, so that GitHub links and closes nothing."""
    return _LINKING.sub(lambda found: f"{found[0]}\u2060", text)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in clean(text))


def _token(text: str) -> str:
    return re.sub(r"[^\w.:-]+", "-", text)[:128]


def flags_of(unit: Unit, *, before: str | None = None, after: str | None = None) -> tuple[str, ...]:
    """Return what a reviewer should look at in a unit, each in a few words; at most MAX_FLAGS.

    Of a file that is there already, as it is `before` and `after`, only the new lines count.
    """
    text = f"{unit.title}\n{unit.body}"
    if before is not None and after is not None:
        known = set(before.splitlines())
        text = "\n".join(line for line in after.splitlines() if line not in known)
    found = [f"pipes into a shell: {one.strip()}" for one in _PIPED.findall(text)]
    found += [f"installs or runs a package: {one[0].strip()}" for one in _INSTALL.finditer(text)]
    found += [f"has a command: {one}" for one in _commands(text)]
    found += [f"names an address: {one[0]}" for one in _URL.finditer(text)]
    if unit.speaker in (Speaker.TOOL, Speaker.QUOTED):
        found.insert(0, "rests on what a tool printed or somebody else wrote")
    return tuple(dict.fromkeys(shorten(one, _SHOWN_CHARS) for one in found))[:MAX_FLAGS]


def _commands(text: str) -> list[str]:
    lines = [line for block in _FENCED.findall(text) for line in block.splitlines()]
    lines += [inline or indented for inline, indented in _CODE.findall(_FENCED.sub("", text))]
    return [line.strip() for line in lines if _COMMAND.match(line)]
