"""Conventional commit messages from paths, the staged diff and the person's requests to the agent.

The form is that of https://www.conventionalcommits.org/en/v1.0.0/: `type(scope): subject` in at most 72 characters,
a body that says why and what, and git trailers.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from itertools import takewhile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from nugget.commits.attribution import LOCK_FILES, Attribution, StagedFile, has_lines
from nugget.config import Settings
from nugget.text import counted, printable

if TYPE_CHECKING:
    from nugget.infra.llm import LLM

HEADER_CHARS = 72
"""The longest first line that `git log` shows whole."""
TYPES = ("feat", "fix", "docs", "test", "build", "ci", "refactor", "chore")
_MAX_SESSIONS = 5
_MAX_REASONS = 4

AUTHORS = {
    "claude-code": "Claude <noreply@anthropic.com>",
    "codex": "Codex <noreply@openai.com>",
    "gemini-cli": "Gemini CLI <noreply@google.com>",
    "cursor": "Cursor <cursoragent@cursor.com>",
    "opencode": "OpenCode <noreply@opencode.ai>",
}
"""The names of agents in `Co-authored-by`."""

_KINDS = {
    "ci": r"^\.github/(?:workflows|actions)/|^\.circleci/|(?:^|/)Jenkinsfile|^\.(?:gitlab-ci|travis)[^/]*$",
    "test": r"(?:^|/)(?:tests?|__tests__|specs?|testdata|fixtures|e2e)/|(?:^|/)(?:test_[^/]*|conftest\.py)$"
    r"|[._-](?:tests?|spec)\.[a-z]+$",
    "build": r"(?:^|/)(?:package\.json|pyproject\.toml|setup\.(?:py|cfg)|requirements[^/]*\.txt|Makefile"
    r"|CMakeLists\.txt|go\.mod|Cargo\.toml|Gemfile|pom\.xml|build\.gradle(?:\.kts)?|Dockerfile[^/]*|docker-compose[^/]*)$",
    "docs": r"(?i:(?:^|/)(?:docs?|documentation)/|\.(?:md|mdx|rst|adoc|txt)$|(?:^|/)LICENSE[^/]*$)",
    "chore": r"(?:^|/)\.[^/]+$|\.(?:ya?ml|toml|ini|cfg|json)$",
}
"""Paths by type of change; the first match counts, and all others are code."""
_VERBS = {"A": "add", "D": "remove", "R": "rename", "C": "copy"}
_GENERIC = frozenset("src lib app pkg packages internal source main java python core index mod __init__".split())
_REQUESTS = {
    "chore": r"\b(?:bump|upgrade (?:the )?dependenc|reformat|lint(?:er|ing)?)\b",
    "refactor": r"\b(?:refactor\w*|restructure\w*|clean ?up|simplif\w+|rename[sd]?|deduplicate\w*)\b",
    "fix": r"\b(?:fix(?:e[sd]|ing)?|bugs?|broken|crash(?:es|ed|ing)?|regressions?|repair|wrong(?:ly)?|errors?"
    r"|fail(?:s|ed|ing|ure)?|leak(?:s|ing)?|deadlock|doesn't work|does not work|beheb\w*|fehler\w*)\b",
}
"""Requests by type of change; the first match counts."""
_CONVENTIONAL = r"(?P<type>[a-z]{2,10})(?:\((?P<scope>[^)]{1,40})\))?!?:\s+(?P<subject>.+)"
_UNSAYABLE = r"https?://\S+|[`\"]{3}|\x1b\[[\d;]*m|[\x00-\x09\x0b-\x1f\x7f]"
MAX_DIFF_CHARS = 24_000
_MAX_FILE_CHARS = 6_000
_MAX_TOKENS = 1_500
_TEXT = {"type": "string"}
_FIELDS: dict[str, Any] = {
    "type": _TEXT | {"enum": list(TYPES)}, "scope": _TEXT | {"description": "one short lower-case word, or empty"},
    "subject": _TEXT, "body": {"type": "array", "items": _TEXT, "description": "paragraphs"},
}  # fmt: skip


Message = tuple[str, tuple[str, ...]]
"""A message without trailers: its first line, and the paragraphs of its body, not yet wrapped."""


def draft(staged: Sequence[StagedFile], *, intents: Sequence[str] = (), reasons: Sequence[str] = ()) -> Message:
    """Return a message made by rules alone.

    `intents` are requests of the person, likeliest first; `reasons` are known decisions and constraints about
    the files. Both are redacted, untrusted text.
    """
    usable = [subject for intent in intents if (subject := subject_of(intent))]
    kind, scope = commit_type(staged, " ".join(usable[:1])), common_scope(staged)
    subject = usable[0] if usable else describe(staged)
    if (found := re.match(_CONVENTIONAL, subject)) and found["type"] in TYPES:
        kind, scope, subject = found["type"], found["scope"] or scope, found["subject"]
    header = _header(kind, scope, subject)
    why = [] if header.endswith(subject) else [sentence(subject)]
    why += [sentence(intent) for intent in usable[1:3]]
    listed = "\n".join(f"- {reason}" for reason in [*why, *reasons][:_MAX_REASONS])
    return header, (listed,) if listed else ()


def _header(kind: str, scope: str, subject: str) -> str:
    """Return `type(scope): subject` in at most HEADER_CHARS characters."""
    head = f"{kind}({scope}): " if scope else f"{kind}: "
    return head + cut(subject, HEADER_CHARS - len(head))


def commit_type(staged: Sequence[StagedFile], intent: str = "") -> str:
    """Return the conventional type, judged by the paths if none is code, else by the request, else by the diff."""
    kinds = {_kind(file.path) for file in staged}
    if "code" not in kinds:
        return next(kind for kind in ("build", "ci", "test", "docs", "chore") if kind in kinds)
    if requested := next((kind for kind, pattern in _REQUESTS.items() if re.search(pattern, intent, re.I)), None):
        return requested
    code = [file for file in staged if _kind(file.path) == "code"]
    is_new = any(file.status == "A" for file in code)
    grows = sum(len(file.added) for file in code) >= 2 * max(1, sum(len(file.removed) for file in code))
    return "feat" if intent or is_new or grows else "refactor"


def common_scope(staged: Sequence[StagedFile]) -> str:
    """Return the name of the one folder or file that the change is about; empty if there are several."""
    paths = [PurePosixPath(file.path) for file in staged if _kind(file.path) == "code"]
    paths = paths or [PurePosixPath(file.path) for file in staged]
    levels = takewhile(lambda level: len(set(level)) == 1, zip(*(path.parts[:-1] for path in paths), strict=False))
    names = [level[0] for level in levels if level[0].lower() not in _GENERIC and not level[0].startswith(".")]
    stem = paths[0].name.lstrip(".").split(".")[0]
    if len(paths) == 1 and len(names) < 2 and stem.lower() not in _GENERIC:
        names.append(stem)
    slug = re.sub(r"[^a-z0-9_-]+", "-", names[-1].lower()).strip("-_") if names else ""
    return slug if 1 < len(slug) <= 20 else ""


def subject_of(intent: str) -> str:
    """Return the first sentence of a request as a subject; empty if it is not a request."""
    from nugget.extraction.requests import aim_of

    text = re.sub(r"\s(#{1,6}\s)", r"\n\1", re.sub(_UNSAYABLE, " ", intent.strip()))  # a plan's title on its own line
    if found := re.match(_CONVENTIONAL, text.partition("\n")[0]):
        return found[0] if found["type"] in TYPES else found["subject"]
    request = re.split(r"(?<=[a-z0-9)\]\"'])[.!?](?:\s|$)", aim_of(text), maxsplit=1)[0].rstrip(" .,;:!?")
    words = request.split()
    if len(words) < 2 or len(request) > 300:
        return ""
    is_plain = words[0][1:].islower()  # unlike `README`, `OAuth2` and `I`
    return request[:1].lower() + request[1:] if is_plain else request


def describe(staged: Sequence[StagedFile]) -> str:
    """Return a subject made from the names of the changed files."""
    verbs = {_VERBS.get(file.status, "update") for file in staged}
    verb = verbs.pop() if len(verbs) == 1 else "update"
    if len(staged) <= 2:
        return f"{verb} {' and '.join(printable(PurePosixPath(file.path).name) for file in staged)}"
    folders = {file.path.partition("/")[0] if "/" in file.path else "" for file in staged}
    place = f" in {printable(folders.pop())}" if len(folders) == 1 and "" not in folders else ""
    return f"{verb} {counted(len(staged), 'file')}{place}"


def trailers(
    attribution: Attribution, *, sessions: Sequence[str], name: str, co_authors: bool = True
) -> list[tuple[str, str]]:
    """Return the trailers for the sessions of a commit and for the authors of its lines."""
    found = [("Nugget-Session", _plain(session)) for session in sessions[:_MAX_SESSIONS]]
    shares, human = attribution.shares()
    if attribution.lines and (shares or sessions):
        parts = [f"{share}% agent ({_plain(agent)})" for agent, share in shares.items()] or ["0% agent"]
        who = f" ({named})" if (named := _plain(name)) else ""
        found.append(("Nugget-Attribution", ", ".join([*parts, f"{human}% human{who}"])))
    if co_authors:
        found += [("Co-authored-by", AUTHORS[agent]) for agent in shares if agent in AUTHORS]
    return found


def render(message: Message, trailers: Sequence[tuple[str, str]] = ()) -> str:
    """Return the whole message, wrapped at 72 characters, with a line end."""

    def wrapped(line: str) -> str:
        first, rest = " " * line.startswith("#"), "  " * line.startswith("- ")
        return textwrap.fill(
            re.sub(r"\s(?=#)", "\0", line),  # git takes lines that begin with # for comments
            HEADER_CHARS, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False,
        ).replace("\0", " ")  # fmt: skip

    header, body = message
    parts = [header, *("\n".join(map(wrapped, part.splitlines())) for part in body)]
    if trailers:
        parts.append("\n".join(f"{key}: {value}" for key, value in trailers))
    return "\n\n".join(part for part in parts if part.strip()) + "\n"


def cut(text: str, max_chars: int) -> str:
    """Return the text on one line in at most `max_chars` characters, cut at a word."""
    line = " ".join(text.split())
    if len(line) <= max_chars:
        return line
    room = line[: max_chars - 1]
    return (room.rpartition(" ")[0] or room).rstrip(" ,;:-(") + "…"


def sentence(text: str) -> str:
    """Return the text as a sentence of a body."""
    line = cut(text, 300)
    return line[:1].upper() + line[1:] + ("" if line.endswith((".", "!", "?", "…", ":")) else ".")


def _kind(path: str) -> str:
    if PurePosixPath(path).name in LOCK_FILES:
        return "build"
    return next((kind for kind, pattern in _KINDS.items() if re.search(pattern, path)), "code")


def _plain(text: str) -> str:
    """Return the text without characters that would end a trailer or its brackets."""
    return " ".join(re.sub(r"[\x00-\x1f\x7f()<>]", " ", text.encode("utf-8", "replace").decode()).split())[:200]


def draft_with_llm(
    llm: LLM, staged: Sequence[StagedFile], by_rules: Message, intents: Sequence[str], reasons: Sequence[str], *,
    settings: Settings,
) -> Message:  # fmt: skip
    """Return a message written by a model. Raises LLMUnavailable."""
    from nugget.infra.llm import Request, object_schema, prompt_text

    requests = "\n".join(f"- {text[:1000]}" for text in intents[:5])
    known = "\n".join(f"- {reason}" for reason in reasons[:10])
    prompt = (
        f"<material>\nAsked for:\n{requests or '(not known)'}\n\nKnown of the reasons:\n{known or '(nothing)'}\n\n"
        f"By rules the message would be: {by_rules[0]}\n\nDiff:\n{_diff(staged)}\n</material>"
    )
    request = Request(
        purpose="commit", model=settings.commit_model, system=prompt_text(__file__, "message"), prompt=prompt,
        max_tokens=_MAX_TOKENS, timeout_s=settings.commit_timeout_s, max_usd=settings.commit_max_usd,
    )  # fmt: skip
    value = llm.structured(request, object_schema(_FIELDS)).value
    subject = " ".join(str(value["subject"]).split()).rstrip(".")
    if not subject:
        return by_rules
    scope = "".join(letter for letter in str(value["scope"]).lower() if letter.isalnum() or letter in "-_")[:20]
    body = tuple(text for part in value["body"] if (text := _paragraph(str(part))))
    return _header(value["type"], scope, subject), body[:4]


def _diff(staged: Sequence[StagedFile]) -> str:
    """Return as many changed lines of each file as fit."""
    parts = []
    for file in staged:
        lines = [f"- {line}" for line in file.removed] + [f"+ {line}" for line in file.added] if has_lines(file) else []
        parts.append("\n".join([f"=== {file.status} {file.path}", *lines])[:_MAX_FILE_CHARS])
    return "\n".join(parts)[:MAX_DIFF_CHARS]


def _paragraph(text: str) -> str:
    """Return a paragraph without control characters, and without lines that git would take for our trailers."""
    kept = [line for line in text.splitlines() if not line.startswith(("Nugget-", "Co-authored-by:", "Signed-off-by:"))]
    return "\n".join("".join(letter for letter in line if letter.isprintable()) for line in kept).strip()
