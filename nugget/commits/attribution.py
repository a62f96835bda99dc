"""Attribution of a commit's lines, by comparing the recorded lines of agents with the staged ones.

docs/commits.md says how lines are counted. A line that several sessions wrote goes to the newest.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from nugget.errors import GitError
from nugget.infra import git
from nugget.models.nuggets import SessionRecord
from nugget.text import line_hash

SUBMODULE = "160000"
_MAX_DIFF_BYTES = 64 * 1024 * 1024
LOCK_FILES = frozenset(
    "package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock bun.lockb Cargo.lock poetry.lock uv.lock"
    " Pipfile.lock pdm.lock Gemfile.lock composer.lock go.sum mix.lock pubspec.lock Package.resolved flake.lock"
    " packages.lock.json gradle.lockfile".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """One path of the next commit, compared with HEAD.

    `status` is git's letter (A, M, D, R, C, T); `previous` is the old path of a renamed or copied file; `added` and
    `removed` are lines without line ends, none for binary files and submodules.
    """

    path: str
    status: str
    mode: str = "100644"
    previous: str | None = None
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    is_binary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The counted lines by author: agents by name, `human` for the rest.

    `sessions` maps the ids of sessions to how many of the lines they wrote, most first.
    """

    agents: Mapping[str, int] = field(default_factory=dict)
    human: int = 0
    sessions: Mapping[str, int] = field(default_factory=dict)

    @property
    def lines(self) -> int:
        """The number of lines counted."""
        return self.human + sum(self.agents.values())

    def shares(self) -> tuple[dict[str, int], int]:
        """The percentages of the agents and of the person, which add up to 100; empty and 0 without lines."""
        parts = {name: count for name, count in {**self.agents, "": self.human}.items() if count}
        given = {name: max(1, round(100 * count / self.lines)) for name, count in parts.items()}
        if given:  # the largest part absorbs the rounding error
            given[max(given, key=lambda name: given[name])] += 100 - sum(given.values())
        human = given.pop("", 0)
        return dict(sorted(given.items(), key=lambda pair: (-pair[1], pair[0]))), human


def attribute(staged: Sequence[StagedFile], records: Iterable[SessionRecord]) -> Attribution:
    """Attribute the staged lines by the sessions `records`, newest first."""
    writers: dict[str, dict[str, SessionRecord]] = {}  # path -> line hash -> the session that wrote it
    for record in records:
        for touch in record.touches:
            lines = writers.setdefault(touch.path, {})
            lines |= {hashed: record for hashed in touch.line_hashes if hashed not in lines}
    moved = Counter(bare for file in staged for line in file.removed if (bare := line.strip()))
    agents: Counter[str] = Counter()
    sessions: Counter[str] = Counter()
    human = 0
    for file in staged:
        if not has_lines(file):
            continue
        known = [writers[path] for path in (file.path, file.previous) if path in writers]
        for line in file.added:
            bare = line.strip()
            if not any(letter.isalnum() for letter in bare):
                continue
            if moved[bare] > 0:
                moved[bare] -= 1
                continue
            hashed = line_hash(bare)
            writer = next((lines[hashed] for lines in known if hashed in lines), None)
            if writer is None:
                human += 1
            else:
                agents[writer.agent] += 1
                sessions[writer.session] += 1
    return Attribution(agents=dict(agents), human=human, sessions=dict(sessions.most_common()))


def has_lines(file: StagedFile) -> bool:
    """Return whether a file has lines that people or agents write."""
    return not file.is_binary and file.mode != SUBMODULE and PurePosixPath(file.path).name not in LOCK_FILES


def staged_files(repo: Path, *, variables: Mapping[str, str] | None) -> tuple[StagedFile, ...]:
    """Return the files that the next commit changes, renames detected, with the added and removed lines.

    Raises GitError if git fails or the change is larger than 64 MB.
    """
    options = ("--no-color", "--find-renames", "--submodule=short", "--unified=0", "--inter-hunk-context=0")
    shown = git.run(repo, "diff", "--cached", "--raw", "-z", "--no-abbrev", "--patch", *options, variables=variables)
    listed, _, patch = shown.partition(b"\0\0")
    tokens = iter(listed.split(b"\0"))
    entries: list[tuple[str, str, str, str | None]] = []
    for token in tokens:
        if token.startswith(b":"):
            old_mode, mode, _, _, status = token.decode("ascii")[1:].split(" ")
            previous = os.fsdecode(next(tokens)) if status[:1] in "RC" else None
            mode = old_mode if mode == "000000" else mode
            entries.append((status[:1], mode, os.fsdecode(next(tokens)), previous))
    if len(patch) > _MAX_DIFF_BYTES:
        hint = "Commit it in parts, or write the message yourself."
        raise GitError("The staged change is larger than 64 MB.", hint=hint)
    # No line of content begins with `diff --git`.
    sections = iter(("\n" + patch.decode("utf-8", "replace")).split("\ndiff --git ")[1:])
    found = []
    for entry in (one for one in entries if one[0] != "U"):  # an unmerged file has no patch
        section = next(sections)
        if entry[0] == "T":  # of a file that becomes a link, git shows the end and the beginning
            section += "\n@@" + next(sections).partition("\n@@")[2]
        found.append(_staged(*entry, section.split("\n")))
    return tuple(found)


def _staged(status: str, mode: str, path: str, previous: str | None, section: list[str]) -> StagedFile:
    start = next((number for number, line in enumerate(section) if line.startswith("@@")), len(section))
    is_binary = any(line.startswith(("Binary files ", "GIT binary patch")) for line in section[:start])
    lines = [] if mode == SUBMODULE else section[start:]
    added, removed = (tuple(line[1:].rstrip("\r") for line in lines if line.startswith(sign)) for sign in "+-")
    return StagedFile(
        path=path, status=status, mode=mode, previous=previous, is_binary=is_binary, added=added, removed=removed
    )


def staged_content(repo: Path, path: str, *, variables: Mapping[str, str] | None) -> bytes | None:
    """Return the staged content of a file, or None."""
    return git.run(repo, "cat-file", "blob", f":{path}", check=False, variables=variables) or None


def author_name(repo: Path, *, variables: Mapping[str, str] | None) -> str:
    """Return the name of the next commit's author, empty if git knows none."""
    ident = git.run(repo, "var", "GIT_AUTHOR_IDENT", check=False, variables=variables).decode("utf-8", "replace")
    return ident.rpartition(" <")[0].strip()
