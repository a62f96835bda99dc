"""Proposals as branches: their names, titles and pull request bodies, and the trailers of their commits.

The commit's message is the title, the body and the trailers, so that a proposal can be listed, shown and opened
as a pull request later from the repository alone. Text from sessions is hostile: it is put into
code spans or escaped, so that it mentions nobody, closes no issue, loads no image and forges no trailer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nugget.capture.compare import BRANCH_PREFIX, ProposalTarget, ProposedChange, base_commit
from nugget.extraction.requests import first_request
from nugget.infra import git
from nugget.models import Origin, Session, Speaker, Unit
from nugget.models.nuggets import way_of
from nugget.models.sessions import said_how
from nugget.text import clean, content_hash, counted, numbered, shorten, slugify

if TYPE_CHECKING:
    from nugget.capture import CaptureResult

DIGEST = f"{BRANCH_PREFIX}digest-"
MAX_FLAGS = 12
WORD_JOINER = "\u2060"
_SHOWN_CHARS, _MAX_DROPPED = 1500, 20
_PROGRAMS = frozenset(
    "sudo curl wget bash sh zsh eval python python3 node npx pip pip3 pipx uv uvx npm pnpm yarn bun brew apt apt-get"
    " dnf yum apk pacman snap gem cargo go composer dotnet docker podman kubectl helm terraform git ssh scp rsync chmod"
    " chown rm dd nc powershell pwsh iex iwr make claude codex gemini".split()
)
_URL = r"(?:\b[a-z][a-z0-9+.-]{1,20}://|\bwww\.|\bgit@)[^\s<>\"'`)\]|]{1,500}"
_PIPED = r"[^\n`]{0,200}\|\s*(?:sudo\s+)?(?:ba|z|da|fi)?sh\b[^\n`]{0,60}|\b(?:iex|eval)\b[^\n`]{1,200}"
_INSTALL = (
    r"\b(?:(?:pip3?|pipx|uv|npm|pnpm|yarn|bun|brew|apt(?:-get)?|dnf|yum|apk|snap|gem|cargo|go|composer|helm|code|conda|mamba)"
    r"(?: \w+)? (?:install|add|i|get)\b|(?:npx|uvx|pipx run|docker run|docker pull|go run) )[^\n`]{0,200}"
)
_CODE = r"(?m)`([^`\n]{2,400})`|^(?: {4}|\t|[$%] )\s*(.{2,400})$"
_FENCED = r"(?ms)^(?:```|~~~)[^\n]*\n(.*?)^(?:```|~~~)"

_TRAILERS = ("Nugget-Import", "Nugget-Title", "Nugget-Session", "Nugget-Records", "Nugget-Method")


def propose(
    target: ProposalTarget, name: str, changes: Sequence[ProposedChange], message: Callable[[str], str]
) -> str | None:
    """Make the branch of a proposal on top of the base commit; return its name, or None for a dry run.

    The name gets a number if it is taken; `message` gives the commit's message for the branch. Sessions are
    added to the digest of the day or week if `publish.every` asks for one.
    """
    if target.dry_run:
        return None
    brain, waiting = target.brain, git.branches(target.brain, BRANCH_PREFIX)
    contents, base = {change.path: change.text.encode() for change in changes}, base_commit(brain)
    if target.settings.publish_every != "session" and name.startswith(f"{BRANCH_PREFIX}session-"):
        if digest := _open_digest(target, waiting, contents.keys(), base):
            text, parents = message(digest.name), [digest.sha]
            sha = git.commit_files(brain, files=contents, message=text, parents=parents, now=target.now)
            git.move_branch(brain, digest.name, sha, expect=digest.sha)
            return digest.name
        name = branch_name("digest", name.rpartition("-")[2], target.now)
    branch = numbered(name, {branch.name for branch in waiting})
    git.create_branch(brain, branch, files=contents, message=message(branch), now=target.now, base=base)
    return branch


def _open_digest(
    target: ProposalTarget, waiting: Sequence[git.Branch], paths: Set[str], base: str | None
) -> git.Branch | None:
    """Return this day's or week's digest, if there is one and it does not change these files."""
    brain, every = target.brain, target.settings.publish_every
    period = _period(f"{target.now.astimezone(UTC):%Y%m%d}", every)
    for one in waiting:
        is_open = is_digest(one.name) and one.name != git.current_branch(brain)
        if is_open and _period(one.name[len(DIGEST) :][:8], every) == period:
            shared = git.merge_base(brain, base or one.sha, one.sha) or git.EMPTY_TREE
            if paths.isdisjoint(change.path for change in git.changes(brain, shared, one.sha)):
                return one
    return None


def is_digest(branch: str) -> bool:
    """Return True if a branch holds the proposals of several sessions, one commit each."""
    return re.match(rf"{DIGEST}\d{{8}}-", branch) is not None


def _period(day: str, every: str) -> tuple[int, ...]:
    moment = datetime.strptime(day, "%Y%m%d")
    return (moment.year, moment.month, moment.day) if every == "day" else tuple(moment.isocalendar()[:2])


def digest_text(units: Sequence[tuple[Unit, str]]) -> tuple[str, str]:
    """Return the title and text of a digest's pull request; each unit is marked `new` or `edited`."""
    title = titled([unit for unit, _ in units]) or "Nothing is left of this digest"
    parts = [f"{counted(len(units), 'unit')} from sessions, a commit for each session. Tick what you have read."]
    for unit, status in units:
        fence = "`" * (3 + max(map(len, re.findall("`{3,}", unit.body)), default=0))
        what = f"{unit.type}, {inline(unit.domain)}, {status}, confidence {unit.confidence:.2f}"
        quotes = [f"> {said_how(one.speaker, one.origin)}: `{_code(shorten(one.quote, 300))}`" for one in unit.evidence]
        flags = [f"- look: {inline(flag)}" for flag in flags_of(unit)]
        text = f"{fence}markdown\n{_printable(unit.body.strip())[:_SHOWN_CHARS]}\n{fence}"
        parts += [f"- [ ] **{inline(unit.title)}** ({what})", text, "\n>\n".join(quotes), "\n".join(flags)]
    parts.append("Edit the files here, delete what you do not want, and merge the rest; close it to reject everything.")
    return title, "\n\n".join(filter(None, parts))


def titled(units: Sequence[Unit]) -> str:
    """Return the title of a proposal of these units: `Webhook signatures over raw bodies, and 3 more`."""
    more = f", and {len(units) - 1} more" if len(units) > 1 else ""
    return f"{_subject(units[0].title)}{more}" if units else ""


def branch_name(kind: str, name: str, moment: datetime) -> str:
    """Return `nugget/<kind>-<YYYYmmdd-HHMMSS>-<name>`, in UTC, so that it does not depend on the time zone."""
    return f"{BRANCH_PREFIX}{kind}-{moment.astimezone(UTC):%Y%m%d-%H%M%S}-{slugify(name, max_chars=30)}"


def session_branch_name(session: Session, moment: datetime) -> str:
    """Return the branch name of a session, which ends with the first digits of the session's id or of a hash."""
    plain = re.fullmatch(r"([0-9a-f]{8})-[0-9a-f-]{27}", session.id)
    return branch_name("session", plain[1] if plain else content_hash(session.id)[:8], moment)


def capture_id(keys: Sequence[str]) -> str:
    """Return the id shared by a plan in the ledger and its commit: the number of records and a digest."""
    return f"{len(keys)} {content_hash(' '.join(keys))[:16]}"


def session_message(session: Session, result: CaptureResult, *, branch: str, keys: Sequence[str]) -> str:
    """Return the commit message for the proposal of a session."""
    changes = result.changes
    new = sum(change.is_new for change in changes)
    counts = ", ".join(f"{count} {how}" for count, how in ((new, "new"), (len(changes) - new, "edited")) if count)
    where = f" in `{_code((session.cwd or '').rstrip('/').rpartition('/')[2])}`" if session.cwd else ""
    about = f" ({inline(session.title, max_chars=80)})" if session.title else ""
    opening = f"{counted(len(changes), 'file')} from a session{where}{about}: {counts}."
    summary = inline(result.summary, max_chars=600) if result.summary else ""
    method, cost = way_of(result.method), f"Cost: ${result.usd:.4f}."
    closing = f"Extraction: {method}. Redacted: {_kinds(result.redacted)}. {cost}"
    asked = session.title or first_request(session)
    trailers = {"Title": _subject(asked, 120)} if asked else {}
    trailers |= {"Session": _token(session.id), "Records": capture_id(keys), "Method": _token(result.method)}
    return _message(
        titled([change.unit for change in changes]),
        [opening, summary, *_parts(changes, result.dropped), closing, _how_to(branch)], trailers,
    )  # fmt: skip


def import_message(
    name: str, changes: Sequence[ProposedChange], *, branch: str, dropped: Sequence[str], redacted: Mapping[str, int]
) -> str:
    """Return the commit message for an import from a folder or file of this name."""
    files = counted(len(changes), "file")
    opening = f"{files} imported from `{_code(name)}`, each with the file and line that it came from."
    parts = [opening, *_parts(changes, dropped), f"Redacted: {_kinds(redacted)}.", _how_to(branch)]
    return _message(f"Knowledge from {_subject(name)}", parts, {"Import": _token(name), "Method": "import"})


def unit_message(
    title: str, opening: str, session: str, changes: Sequence[ProposedChange], *, branch: str, dropped: Sequence[str]
) -> str:
    """Return the commit message for a single unit; `opening` is markdown."""
    parts = [opening, *_parts(changes, dropped), _how_to(branch)]
    return _message(_subject(title, 80), parts, {"Session": _token(session), "Method": "promotion"})


def parse_message(text: str) -> tuple[str, str, dict[str, str]]:
    """Return title, body and trailers of a proposal's message, which a person may have edited."""
    first, _, rest = text.strip().partition("\n")
    lines = rest.strip().split("\n")
    trailers: dict[str, str] = {}
    while lines and (found := re.fullmatch(r"(Nugget-[A-Za-z]+): (.*)", lines[-1])):
        if found[1] in _TRAILERS:
            trailers.setdefault(found[1], found[2])
        lines.pop()
    return first.strip(), "\n".join(lines).strip(), trailers


def inline(text: str | None, *, max_chars: int = 300) -> str:
    """Return text from a session on one line, escaped for markdown."""
    return _unlinked(re.sub(r"([\\`*_{}\[\]<>|~!$])", r"\\\1", shorten(_printable(text or ""), max_chars)))


def flags_of(unit: Unit, *, before: str | None = None, after: str | None = None) -> tuple[str, ...]:
    """Return at most MAX_FLAGS short phrases on what a reviewer should check in a unit.

    For an edited file, given as `before` and `after`, only its new lines count.
    """
    text = f"{unit.title}\n{unit.body}"
    if before is not None and after is not None:
        known = set(before.splitlines())
        text = "\n".join(line for line in after.splitlines() if line not in known)

    def every(what: str, pattern: str) -> list[str]:
        return [f"{what}: {one[0].strip()}" for one in re.finditer(pattern, text, re.IGNORECASE)]

    lines = [line for block in re.findall(_FENCED, text) for line in block.splitlines()]
    lines += [quoted or indented for quoted, indented in re.findall(_CODE, re.sub(_FENCED, "", text))]
    is_foreign = unit.speaker in (Speaker.TOOL, Speaker.QUOTED)
    found = ["rests on what a tool printed or somebody else wrote"] if is_foreign else []
    found += every("pipes into a shell", _PIPED) + every("installs or runs a package", _INSTALL)
    commands = [(re.match(r"\s*(?:[$%#>] )?(?:\w+=\S+ )*(\S+)", line), line.strip()) for line in lines]
    found += [f"has a command: {line}" for command, line in commands if command and command[1] in _PROGRAMS]
    return tuple(dict.fromkeys(shorten(one, 120) for one in found + every("names an address", _URL)))[:MAX_FLAGS]


def _message(title: str, parts: Sequence[str], trailers: Mapping[str, str]) -> str:
    ends = "\n".join(f"Nugget-{name}: {value}" for name, value in trailers.items())
    return "\n\n".join([title, *filter(None, parts), ends]) + "\n"


def _parts(changes: Sequence[ProposedChange], dropped: Sequence[str]) -> list[str]:
    """Return the sections of a message: table of files, points to check, evidence, and omissions."""
    rows = ["| file | type | domain | confidence | why |", "|---|---|---|---|---|"]
    noted: list[str] = []
    for change in changes:
        unit, path = change.unit, f"`{_code(change.path)}`"
        cells = [f"{path}{'' if change.is_new else ' (edited)'}", unit.type, inline(unit.domain)]
        cells += [f"{unit.confidence:.2f}", inline(change.reason, max_chars=160)]
        rows.append(f"| {' | '.join(cells)} |")
        flags = flags_of(unit, before=change.before, after=change.text)
        noted += [f"- {path}: {inline(note)}" for note in (change.note, *flags) if note]
    parts = ["\n".join(rows)]
    if noted:
        parts.append("### Look at these\n\n" + "\n".join(noted))
    parts.append("### Evidence\n\n" + "\n\n".join(map(_evidence, changes)))
    if dropped:
        shown = [f"- {inline(reason, max_chars=200)}" for reason in dropped[:_MAX_DROPPED]]
        more = [f"- and {len(dropped) - _MAX_DROPPED} more"] if len(dropped) > _MAX_DROPPED else []
        parts.append("### Left out\n\n" + "\n".join(shown + more))
    return parts


def reasons_in(body: str) -> dict[str, str]:
    """Return the reason for each proposed file, by path, from the table of `_parts`."""
    found = {}
    for line in body.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if len(cells) == 5 and cells[0].startswith("`"):
            found[cells[0].strip("`").partition("`")[0]] = cells[4].replace("\\", "")
    return found


def _evidence(change: ProposedChange) -> str:
    evidence = change.unit.evidence
    quotes = [f"> {said_how(one.speaker, one.origin)}: `{_code(shorten(one.quote, 300))}`" for one in evidence]
    if change.unit.origin is Origin.IMPORTED:
        quotes += [f"> from `{_code(one.session)}`" for one in evidence]
    return f"**{inline(change.unit.title)}**\n\n" + "\n>\n".join(quotes or ["> (no quote)"])


def _how_to(branch: str) -> str:
    return (
        "### How to edit or reject\n\n"
        f"In a terminal: `nugget review show {branch}`, then `accept`, `accept --unit ID` for single files, or "
        "`reject`. In a pull request: edit the files there, delete what you do not want, merge what is right; "
        "close it to reject everything. What was rejected is not proposed again."
    )


def _kinds(redacted: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {_code(kind)}" for kind, count in sorted(redacted.items())) or "nothing"


def _subject(text: str, max_chars: int = 60) -> str:
    """Return text for a commit's first line, which is not markdown."""
    return _unlinked(shorten(_printable(text), max_chars))


def _code(text: str) -> str:
    """Return text for use inside a code span: on one line, without backticks and cell borders."""
    return _unlinked(" ".join(_printable(text).replace("`", "'").replace("|", "\u2502").split()))


def coded(text: str) -> str:
    """Return text as a code span."""
    return f"`{_code(text)}`"


def _unlinked(text: str) -> str:
    """Insert word joiners after @ and # and in ://, so that GitHub makes no links and closes no issues."""
    linking = r"[@#](?=\w)|(?<=:)(?=//)|(?<=\bwww)(?=\.)|(?<=\bGH)(?=-\d)"
    return re.sub(linking, lambda found: found[0] + WORD_JOINER, text)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in clean(text))


def _token(text: str) -> str:
    return re.sub(r"[^\w.:-]+", "-", text)[:128]
