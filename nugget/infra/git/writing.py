"""Write commits and branches without touching other work of the user, and run the person's own next commit."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from nugget.config import read_environment
from nugget.errors import BrainError, GitError
from nugget.infra import git
from nugget.infra.git.changing import DURABLE, RefChange, change_refs, only_writer, uncommitted, update_index
from nugget.infra.git.process import Setting, environment, run, start, user_settings


def init(path: Path) -> None:
    """Make `path` a git repository of SHA-1 objects on its configured first branch, else `main`."""
    if git.is_repository(path) and git.word(path, "rev-parse", "--show-object-format") == "sha256":
        raise BrainError(f"{path} is a git repository of SHA-256 objects, which a brain cannot be.")
    branch = git.word(path, "config", "--get", "init.defaultBranch") or "main"
    run(path, "init", "--quiet", "--object-format=sha1", f"--initial-branch={branch}")


def require_commit(repo: Path) -> str:
    """Return the commit that is checked out. Raises BrainError without one."""
    if not git.is_repository(repo) or (tip := git.head(repo)) is None:
        raise BrainError(f"{repo} is not a git repository with a commit.", hint="Run `nugget init` in it.")
    return tip


def ready_branch(repo: Path) -> tuple[str, str]:
    """Return the checked-out branch and its commit. Raises BrainError if the user is in the middle of something."""
    tip = require_commit(repo)
    branch = git.current_branch(repo)
    if (found := git.unsettled(repo)) or branch is None:
        state, step = found or ("on a detached HEAD", "`git switch <branch>`")
        raise BrainError(f"The brain is {state}; nothing was changed.", hint=f"{step} ends that; then run this again.")
    return branch, tip


def commit_change(
    repo: Path, files: Mapping[str, bytes | None], message: str, *, branch: str, expect_head: str | None,
    now: datetime | None = None, beside: Callable[[str], RefChange] | None = None,
) -> str | None:  # fmt: skip
    """Commit these contents (None: deleted) on the checked-out branch; None if nothing would change.

    The change of another branch that `beside` returns for the commit is made in the same step. The user's other work
    stays as it is, staged or not. Raises ConflictError if `branch` is no longer at `expect_head`, or one of the files
    has uncommitted work.
    """
    held = git.read_objects(repo, [f"{expect_head}:{path}" for path in files]) if expect_head else [None] * len(files)
    changed = {path: content for (path, content), old in zip(files.items(), held, strict=True) if content != old}
    if as_committed := [path for path in files if path not in changed]:
        options = ("--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignored")
        status = run(repo, "status", *options, "--", *as_committed)
        if status:
            raise uncommitted([os.fsdecode(record[3:]) for record in status.split(b"\0") if record])
    if not changed:
        return None
    with only_writer(repo):
        parents = [expect_head] if expect_head else []
        sha = commit_files(repo, files=changed, message=message, parents=parents, now=now)
        refs = [RefChange(ref=f"refs/heads/{branch}", new=sha, expect=expect_head), *([beside(sha)] if beside else [])]
        change_refs(repo, refs, message=message, checkout=True)
    return sha


def create_branch(
    repo: Path, name: str, *, files: Mapping[str, bytes | None], message: str, now: datetime, base: str | None = "HEAD"
) -> str:
    """Make a local branch with one commit that writes (bytes) or deletes (None) `files` on top of `base`.

    Neither index nor checkout is touched. Raises ConflictError if the branch exists, even if another process has just
    made it. `base=None` makes a commit without a parent.
    """
    parent = git.resolve(repo, base) if base else None
    with only_writer(repo):
        sha = commit_files(repo, files=files, message=message, parents=[parent] if parent else [], now=now)
        change_refs(repo, [RefChange(ref=f"refs/heads/{name}", new=sha, expect=None)], message=message)
    return sha


def commit_files(
    repo: Path, *, files: Mapping[str, bytes | None], message: str, parents: Sequence[str], now: datetime | None = None
) -> str:
    """Make a commit, on no branch yet, of the first parent's tree with `files` changed.

    It is signed if the user's own configuration asks for that (`commit.gpgsign`).
    """
    signs, settings = _committer(repo)
    links = [part for parent in parents for part in ("-p", parent)]
    moment = f"{int(now.timestamp())} {now.strftime('%z') or '+0000'}" if now else ""
    dates = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), moment) if now else {}
    contents = {path: content for path, content in files.items() if content is not None}
    stream = [b"feature done\n"]
    for number, content in enumerate(contents.values(), 1):
        stream.append(b"blob\nmark :%d\ndata %d\n%s\nget-mark :%d\n" % (number, len(content), content, number))
    stream.append(b"done\n")
    with only_writer(repo) as work:
        written = run(repo, "fast-import", "--quiet", stdin=b"".join(stream), settings=DURABLE).decode().split()
        blobs = {**dict.fromkeys(files), **dict(zip(contents, written, strict=True))}
        (work / "tree").unlink(missing_ok=True)
        variables = {"GIT_INDEX_FILE": str(work / "tree")}
        if parents:
            run(repo, "read-tree", parents[0], variables=variables)
        update_index(repo, work / "tree", {path: ("100644", blob) for path, blob in blobs.items()})
        tree = run(repo, "write-tree", variables=variables, settings=DURABLE).decode().strip()
        arguments = ("commit-tree", *(["-S"] if signs else []), *links, "-F", "-", tree)
        text = message.encode("utf-8", "replace")
        return run(repo, *arguments, stdin=text, variables=dates, settings=(*DURABLE, *settings)).decode().strip()


def move_branch(repo: Path, name: str, sha: str | None, *, expect: str) -> None:
    """Move a branch that still points at `expect` to `sha`, or delete it (None).

    Raises GitError if it moved or is checked out.
    """
    refuse_checked_out(repo, name)
    message = f"move {name}" if sha else f"delete {name}"
    change_refs(repo, [RefChange(ref=f"refs/heads/{name}", new=sha, expect=expect)], message=message)


def refuse_checked_out(repo: Path, name: str) -> None:
    """Raise GitError if a branch is checked out, here or in another worktree, so that it cannot be moved."""
    if checked_out := git.word(repo, "for-each-ref", "--format=%(worktreepath)", f"refs/heads/{name}"):
        raise GitError(f"{name} is checked out in {checked_out}.", hint="Switch to another branch there first.")


def _committer(repo: Path) -> tuple[bool, list[Setting]]:
    """Return whether the user's own configuration asks for signed commits, and the settings of a commit."""
    variables = environment()
    settings = user_settings(repo, r"^gpg\.")
    for key, fallback in (("name", "Nugget"), ("email", "nugget@localhost")):
        given = f"GIT_COMMITTER_{key.upper()}" in variables and f"GIT_AUTHOR_{key.upper()}" in variables
        if not given and not git.word(repo, "config", "--get", f"user.{key}"):
            settings.append((f"user.{key}", fallback))
    signs = dict(user_settings(repo, r"^commit\.gpgsign$")).get("commit.gpgsign", "false")
    return signs.lower() in ("", "true", "yes", "on", "1"), settings


def merge_files(ours: bytes, base: bytes, theirs: bytes) -> bytes | None:
    """Return the three-way merge of one text file, None if both sides changed the same lines."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("ours", ours), ("base", base), ("theirs", theirs)):
            (Path(folder) / name).write_bytes(content)
        completed = start(Path(folder), ("merge-file", "-p", "ours", "base", "theirs"))
    return completed.stdout if completed.returncode == 0 else None


def commit_staged(repo: Path, message: Path, *, edit: bool) -> int:
    """Run the person's own `git commit`, with their hooks, editor and signature, and return its exit code."""
    command = ["git", "commit", "--file", str(message), *(["--edit"] if edit else [])]
    return subprocess.run(command, cwd=repo, env=dict(read_environment().variables), check=False).returncode
