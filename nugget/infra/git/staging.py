"""Read what is staged for the next commit and where hooks lie, and start the person's own commit.

Unlike everything else here, that commit runs with the person's hooks, editor and signature.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nugget.config import read_environment
from nugget.errors import GitError
from nugget.infra.git.process import run

SUBMODULE = "160000"
_HANDED_ON = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
"""The variables with which git tells a hook about the commit under way, such as the index of `git commit FILE`."""
_MAX_DIFF_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """One path of the next commit, compared with HEAD.

    `status` is git's letter (A, M, D, R, C, T); `previous` is the path that a renamed or copied file had; `added` and
    `removed` are lines without their ends, none for binary files and submodules.
    """

    path: str
    status: str
    mode: str = "100644"
    previous: str | None = None
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    is_binary: bool = False


def hook_variables() -> dict[str, str]:
    """Return the variables that git gave this process as its hook."""
    given = read_environment().variables
    return {name: given[name] for name in _HANDED_ON if given.get(name)}


def staged_files(repo: Path, *, variables: Mapping[str, str] | None = None) -> tuple[StagedFile, ...]:
    """Return the files that the next commit changes, renames detected, with the added and removed lines.

    Raises GitError if git fails or the change is larger than 64 MB.
    """
    asked = ("diff", "--cached", "--no-color", "--find-renames", "--submodule=short")
    tokens = iter(run(repo, *asked, "--raw", "-z", "--no-abbrev", variables=variables).split(b"\0"))
    entries: list[tuple[str, str, str, str | None]] = []
    for token in tokens:
        if not token.startswith(b":"):
            continue
        old_mode, mode, _, _, status = token.decode("ascii")[1:].split(" ")
        path = os.fsdecode(next(tokens, b""))
        previous = None
        if status[:1] in "RC":
            previous, path = path, os.fsdecode(next(tokens, b""))
        entries.append((status[:1], old_mode if mode == "000000" else mode, path, previous))
    if not entries:
        return ()
    patch = run(repo, *asked, "--patch", "--unified=0", "--inter-hunk-context=0", variables=variables)
    if len(patch) > _MAX_DIFF_BYTES:
        raise GitError(
            "The staged change is larger than 64 MB.", hint="Commit it in parts, or write the message yourself."
        )
    sections = _sections(patch)
    if len(sections) != len(entries):
        raise GitError("The staged change could not be read.", hint="Write the message yourself.")
    return tuple(_staged(*entry, section) for entry, section in zip(entries, sections, strict=True))


def _sections(patch: bytes) -> list[list[str]]:
    """Return the lines of each file's part of a patch. No line of a content begins with `diff --git`."""
    sections: list[list[str]] = []
    for line in patch.decode("utf-8", "replace").split("\n"):
        if line.startswith("diff --git "):
            sections.append([])
        elif sections:
            sections[-1].append(line)
    return sections


def _staged(status: str, mode: str, path: str, previous: str | None, section: list[str]) -> StagedFile:
    start = next((number for number, line in enumerate(section) if line.startswith("@@")), len(section))
    is_binary = any(line.startswith(("Binary files ", "GIT binary patch")) for line in section[:start])
    lines = [] if mode == SUBMODULE else section[start:]
    return StagedFile(
        path=path, status=status, mode=mode, previous=previous, is_binary=is_binary,
        added=tuple(line[1:].rstrip("\r") for line in lines if line.startswith("+")),
        removed=tuple(line[1:].rstrip("\r") for line in lines if line.startswith("-")),
    )  # fmt: skip


def staged_content(repo: Path, path: str, *, variables: Mapping[str, str] | None = None) -> bytes | None:
    """Return the staged content of a file, None if it has none."""
    return run(repo, "cat-file", "blob", f":{path}", check=False, variables=variables) or None


def author_name(repo: Path, *, variables: Mapping[str, str] | None = None) -> str:
    """Return the author's name of the next commit; empty if git knows none."""
    ident = run(repo, "var", "GIT_AUTHOR_IDENT", check=False, variables=variables).decode("utf-8", "replace")
    return ident.rpartition(" <")[0].strip()


def comment_mark(repo: Path) -> str:
    """Return the start of comment lines in a commit message: `core.commentString`, `core.commentChar`, else `#`."""
    for key in ("core.commentString", "core.commentChar"):
        if (mark := run(repo, "config", "--get", key, check=False).decode("utf-8", "replace").strip()) not in (
            "",
            "auto",
        ):
            return mark
    return "#"


def top_folder(folder: Path) -> Path:
    """Return the top of the checkout that a folder is in. Raises GitError if it is in none."""
    return Path(os.fsdecode(run(folder, "rev-parse", "--path-format=absolute", "--show-toplevel")).rstrip("\n"))


def checkouts(repo: Path) -> list[Path]:
    """Return the folders of a repository's worktrees, the main one first."""
    output = run(repo, "worktree", "list", "--porcelain", "-z", check=False)
    return [Path(os.fsdecode(line[9:])) for line in output.split(b"\0") if line.startswith(b"worktree ")]


@dataclass(frozen=True, slots=True, kw_only=True)
class HooksFolder:
    """The folder in which git looks for hooks; `scope` is that of `core.hooksPath` (`local`, `global`, ...) if set."""

    path: Path
    scope: str | None = None


def hooks_folder(repo: Path) -> HooksFolder:
    """Return the folder of a checkout's hooks; `core.hooksPath` is honoured. Raises GitError outside of git."""
    asked = ("rev-parse", "--path-format=absolute", "--git-common-dir", "--show-toplevel")
    common, *top = os.fsdecode(run(repo, *asked)).removesuffix("\n").split("\n")
    told = run(repo, "config", "--type=path", "--show-scope", "--get-all", "core.hooksPath", check=False)
    set_by = [line.split("\t", 1) for line in os.fsdecode(told).split("\n") if "\t" in line]
    # Our own git processes switch hooks off by this very setting, in the scope `command`.
    named = [(scope, value) for scope, value in set_by if scope != "command" and value]
    if not named:
        return HooksFolder(path=Path(common) / "hooks")
    scope, value = named[-1]
    return HooksFolder(path=Path(top[0] if top else common, value), scope=scope)


def commit_staged(repo: Path, message: Path, *, edit: bool) -> int:
    """Run `git commit` with the message in a file at the person's terminal and return git's exit code.

    Raises GitError if git cannot be started.
    """
    command = ["git", "commit", "--file", str(message), *(["--edit"] if edit else [])]
    try:
        return subprocess.run(command, cwd=repo, env=dict(read_environment().variables), check=False).returncode
    except OSError as error:
        raise GitError(f"git commit could not be started in {repo} ({error}).") from error
