"""How a unit is worded: title, tags and domain, made from what was said."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from nugget.extraction.cues import LEAD_INS, SAYS_THE_CAUSE
from nugget.models import EventKind, Session
from nugget.text import shorten

TITLE_CHARS = 80

_EXTENSIONS = {
    "go": ".go", "python": ".py .pyi", "typescript": ".ts .tsx .mts", "javascript": ".js .jsx .mjs .cjs", "rust": ".rs",
    "java": ".java", "kotlin": ".kt", "ruby": ".rb", "php": ".php", "csharp": ".cs", "swift": ".swift", "c": ".c .h",
    "cpp": ".cc .cpp .hpp", "shell": ".sh .bash .zsh", "sql": ".sql", "terraform": ".tf", "scala": ".scala",
    "elixir": ".ex .exs", "lua": ".lua", "vue": ".vue", "dart": ".dart", "haskell": ".hs", "zig": ".zig",
}  # fmt: skip
_LANGUAGES = {ending: language for language, endings in _EXTENSIONS.items() for ending in endings.split()}

_TOPICS = {
    "git": r"\bgit\b|\bmerge|\brebase|\bcommit\b|\bbranch",
    "ci": r"\bCI\b|github actions|\bpipeline\b",
    "testing": r"\btests?\b|\bpytest\b|\bfixture",
    "concurrency": r"\brace\b|parallel|\bmutex\b|\bdeadlock|goroutine|\bthreads?\b",
    "linting": r"\blint|\bgosec\b|\berrcheck\b|\bruff\b|\beslint\b|\bbiome\b",
    "docker": r"\bdocker|\bcontainer\b",
    "security": r"\bsecurity\b|\bsecrets?\b|injection|traversal|\bauth",
    "performance": r"\bslow|latency|\btimeout|performance|\bcache",
    "database": r"\bSQL\b|postgres|sqlite|mysql|transaction|\bprisma\b",
    "http": r"\bHTTP\b|webhook|\bAPI\b|\brequest",
    "json": r"\bjson\b",
    "logging": r"\blogs?\b|\blogging\b",
    "dependencies": r"\bdependenc|\bnpm\b|\bpackage\b",
    "types": r"\btype alias|\btypecheck|\bTypeScript\b",
    "streaming": r"\bstream|\bSSE\b",
    "migration": r"\bmigrat|backward",
    "editor": r"\bLSP\b|\bgopls\b|diagnostics",
}
_TOPIC_PATTERNS = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in _TOPICS.items()}

_LINK = re.compile(r"\[([^\[\]]{1,500})\]\([^)]{0,500}\)")
_BOLD = re.compile(r"\*\*(.+?)\*\*|__(.+?)__")
_CLAUSE_ENDS = (
    re.compile(r"\s[—–]\s|;\s|:\s|\.\s|\s\("),
    re.compile(r",\s(?:which|so|because|but|since|and|even|where|then)\b|\s-\s"),
    re.compile(r",\s|\s(?:because|since|when|so that|which)\s"),
    re.compile(r"\s(?:and|or|but|while|until|unless|if|instead of|rather than|before|after|during|via|without)\s"),
    re.compile(r"\s(?:for|from|with|by|in|on|at|into|to|as|than)\s"),
)
_CLAUSE_BREAK = re.compile(r"(?:;|,? so|,? but|\s[—–-])\s")
_STARTS_WITH_CODE = re.compile(r"`|[a-z]+[A-Z_.(/:-]|[a-z]+\d")
_ASIDE = re.compile(r"\s\((?:e\.g\.|i\.e\.|for example|such as|see)[^()]{0,200}\)")
_DANGLING = re.compile(
    r"(?:[\s,]+(?:because|since|that|so|and|or|with|as follows|by|to|in|is|for|from|on|at|of|the|a|an|just|only|be|was"
    r"|are|then|when|if|than|as|into))+$",
    re.IGNORECASE,
)
_COMMIT_PREFIX = re.compile(
    r"^(?:fix|feat|chore|docs?|style|tests?|refactor|perf|ci"
    r"|build)(?:\([^)]*\))?!?:\s+",
    re.IGNORECASE,
)
_SUBORDINATE = re.compile(r"^(?:if|when|since|because|as|while|for|after|before|with|in|once|to|by)\b", re.IGNORECASE)
_POINTING = re.compile(r"^(?:so|but|and|then|that|also)\s+", re.IGNORECASE)


def title_from(sentence: str, *, prefer: re.Pattern[str] | None = None) -> str:
    """A short title: without lead-in, markup and what follows the point, at most TITLE_CHARS characters.

    Of a sentence that is too long, the clause in which `prefer` is found is taken.
    """
    text = point_of(sentence)
    if len(text) > TITLE_CHARS:
        text = _ASIDE.sub("", text)
    if len(text) > TITLE_CHARS and prefer is not None:
        clauses = [clause for clause in _CLAUSE_BREAK.split(text) if prefer.search(clause) and len(clause) >= 24]
        text = clauses[0] if clauses else text
    least = 70 if _SUBORDINATE.match(text) else 34
    for ends in _CLAUSE_ENDS:
        if len(text) <= TITLE_CHARS:
            break
        cut = [found.start() for found in ends.finditer(text) if least <= found.start() <= TITLE_CHARS]
        if cut:
            text = text[: cut[-1]]
    if len(text) > TITLE_CHARS:
        text = text[:TITLE_CHARS].rsplit(" ", 1)[0] + "…"
    text = _DANGLING.sub("", balanced(text.strip().rstrip(".,;:!—–- ")))
    return capitalised(text)


def point_of(sentence: str) -> str:
    """The sentence without `Found it!` before it and `The root cause is that` at its head, and without bold."""
    text = _COMMIT_PREFIX.sub("", plain(sentence))
    previous = ""
    while text != previous:
        previous = text
        stripped = LEAD_INS.sub("", text)
        stripped = SAYS_THE_CAUSE.sub("", stripped)
        stripped = _POINTING.sub("", stripped)
        if len(stripped) >= 20:
            text = stripped
    return capitalised(text)


def capitalised(text: str) -> str:
    """With a capital first letter, unless the first word is code: `origin/main`, `parseArgs`, `go.sum`."""
    return text if _STARTS_WITH_CODE.match(text) else text[:1].upper() + text[1:]


def opening(text: str) -> str:
    """A passage as prose, without `Found it!` and the like before its first sentence."""
    prose = plain(text)
    stripped = LEAD_INS.sub("", prose)
    return capitalised(stripped) if len(stripped) >= 20 and stripped != prose else prose


def plain(text: str) -> str:
    """Prose without links and bold, on one line; code keeps its backticks."""
    unmarked = _BOLD.sub(lambda found: found.group(1) or found.group(2), _LINK.sub(r"\1", text))
    return " ".join(unmarked.replace("**", "").split())


def language_of(session: Session) -> str | None:
    """The language of most files that were edited (counted thrice) or read."""
    counts: Counter[str] = Counter()
    for event in session.events:
        if event.path:
            language = _LANGUAGES.get(PurePosixPath(event.path).suffix.lower())
            if language:
                counts[language] += 3 if event.kind is EventKind.FILE_EDIT else 1
    return counts.most_common(1)[0][0] if counts else None


def domain_of(session: Session) -> str:
    """`coding/<language>` where files of one were touched, `coding` where commands ran, else `general`."""
    language = language_of(session)
    if language:
        return f"coding/{language}"
    return "coding" if any(event.kind is EventKind.COMMAND for event in session.events) else "general"


def tags_of(text: str, language: str | None, *, limit: int = 4) -> tuple[str, ...]:
    """The language and the topics that the text names."""
    topics = [name for name, pattern in _TOPIC_PATTERNS.items() if pattern.search(text)]
    return tuple(dict.fromkeys([*([language] if language else []), *topics]))[:limit]


def project_of(session: Session) -> str | None:
    """The name of the folder that the session ran in; of a worktree below `.worktrees`, that of its repository."""
    parts: Iterable[str] = PurePosixPath(session.cwd or "").parts
    kept = []
    for part in parts:
        if part in (".worktrees", "worktrees", ".claude"):
            break
        kept.append(part)
    return kept[-1] if len(kept) > 1 else None


def fitting(start: str, names: Sequence[str]) -> str:
    """`start` with as many of the names as fit a title, the first in any case."""
    title = f"{start} {names[0]}"
    for name in names[1:]:
        if len(title) + len(name) + 2 > TITLE_CHARS:
            break
        title += f", {name}"
    return balanced(shorten(title, TITLE_CHARS))


def balanced(text: str) -> str:
    """Without a backtick, bracket or quote that was opened and cut off."""
    if text.count("`") % 2:
        text = text[: text.rfind("`")].rstrip()
    if text.count("(") > text.count(")"):
        text = text[: text.rfind("(")].rstrip()
    return text.rstrip(" ,;:—–-")
