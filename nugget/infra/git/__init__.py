"""The one gateway to git: through GitPython, with the settings and the environment of `nugget.infra.git.process`.

Nothing here runs a program that a repository names, asks for a password, or opens an editor; every failure is a
GitError that carries git's own first sentence. The brain is the root of its repository, so paths are relative to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from io import BytesIO
from pathlib import Path

from nugget.infra.git.changing import RefChange, change_refs, clear_errors, finish_pending, only_writer, wait_until_free
from nugget.infra.git.process import run, start
from nugget.infra.git.writing import (
    commit_change,
    commit_files,
    commit_staged,
    create_branch,
    init,
    merge_files,
    move_branch,
    ready_branch,
    refuse_checked_out,
    require_commit,
)

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""The id of the tree without files, to compare with before the first commit."""
_NEVER = datetime.min.replace(tzinfo=UTC)
_LATEST_S = 253_370_764_800
"""9999-01-01, so that it is a date in every time zone."""
_IN_PROGRESS = {
    "MERGE_HEAD": "merge", "rebase-merge": "rebase", "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick", "REVERT_HEAD": "revert",
}  # fmt: skip
_RAW = ("--raw", "-z", "--no-renames", "--no-abbrev", "--root")


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A local branch with the commit it points at."""

    name: str
    sha: str
    committed: datetime
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One path that differs between two commits; blob ids are None where the path is absent. `mode` is the new one.

    In a history, `commit` is the one that changed it, with its time and message.
    """

    path: str
    before: str | None
    after: str | None
    mode: str = "100644"
    commit: str = ""
    committed: datetime = _NEVER
    message: str = ""


def is_repository(path: Path) -> bool:
    """Return True if `path` is the root of a git checkout (worktrees included)."""
    return (path / ".git").exists()


def head(repo: Path) -> str | None:
    """Return the commit that is checked out, None before the first one."""
    return resolve(repo, "HEAD")


def resolve(repo: Path, revision: str) -> str | None:
    """Return the full id of a commit, None if it does not exist."""
    return word(repo, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")


def current_branch(repo: Path) -> str | None:
    """Return the name of the checked-out branch, None if HEAD is detached."""
    return word(repo, "symbolic-ref", "--quiet", "--short", "HEAD")


def merge_base(repo: Path, one: str, other: str) -> str | None:
    """Return the best common ancestor of two commits, None if they share no history."""
    return word(repo, "merge-base", one, other)


def distance(repo: Path, one: str, other: str) -> tuple[int, int] | None:
    """Return how many commits only the first and only the second has, or None if one is missing."""
    counts = word(repo, "rev-list", "--left-right", "--count", f"{one}...{other}", "--")
    return None if counts is None else (int(counts.split()[0]), int(counts.split()[1]))


def commit_before(repo: Path, moment: datetime) -> str | None:
    """Return the last commit of the checked-out branch up to a moment, None without one."""
    return word(repo, "rev-list", "--max-count=1", f"--before={int(moment.timestamp())}", "HEAD")


def unsettled(repo: Path) -> tuple[str, str] | None:
    """Return why nothing should be committed here now, and the command that ends that state, or None."""
    folder = git_dir(repo)
    if operation := next((name for file, name in _IN_PROGRESS.items() if (folder / file).exists()), None):
        return f"in the middle of a {operation}", f"`git {operation} --continue` or `--abort`"
    if (folder / "BISECT_LOG").exists():
        return "in the middle of a bisect", "`git bisect reset`"
    return None if current_branch(repo) else ("on a detached HEAD", "`git switch <branch>`")


def git_dir(repo: Path) -> Path:
    """Return the `.git` folder of a checkout; for a linked worktree, the folder its `.git` file names."""
    entry = repo / ".git"
    if not entry.is_file():
        return entry
    return (repo / entry.read_text("utf-8", "replace").removeprefix("gitdir:").strip()).resolve()


def lock_files(repo: Path) -> list[Path]:
    """Return git's own lock files that exist in its folder now (gitrepository-layout(5)).

    git deletes them when it is done; the lock of a killed git stays, and blocks every later one.
    """
    folder = git_dir(repo)
    shared = folder
    with suppress(OSError):  # a linked worktree shares all but index and HEAD
        shared = Path(os.path.normpath(folder / (folder / "commondir").read_text("utf-8").strip()))
    named = ("packed-refs.lock", "reftable/tables.list.lock", "config.lock")
    all_named = [folder / "index.lock", folder / "HEAD.lock", *(shared / name for name in named)]
    return [*filter(os.path.lexists, all_named), *sorted((shared / "refs").rglob("*.lock"))]


def top_folder(folder: Path) -> Path:
    """Return the top of the checkout that a folder is in. Raises GitError if it is in none."""
    return Path(os.fsdecode(run(folder, "rev-parse", "--path-format=absolute", "--show-toplevel")).rstrip("\n"))


def checkouts(repo: Path) -> list[Path]:
    """Return the folders of a repository's worktrees, the main one first."""
    output = run(repo, "worktree", "list", "--porcelain", check=False)
    return [Path(os.fsdecode(line[9:])) for line in output.splitlines() if line.startswith(b"worktree ")]


def uncommitted_paths(repo: Path) -> list[str]:
    """Return the paths under `domains/` that differ from the commit, from one `git status` that takes no lock."""
    options = ("--porcelain", "-z", "--untracked-files=all", "--no-renames")
    records = run(repo, "status", *options, "--", "domains").split(b"\0")
    # A path that ends in `/` is a nested repository.
    return [os.fsdecode(record[3:]) for record in records if record and not record.endswith(b"/")]


def changes(repo: Path, old: str, new: str) -> list[Change]:
    """Return every path that differs between two commits, with both blob ids."""
    return [change for _, change in _raw_changes(run(repo, "diff-tree", "-r", *_RAW, old, new))]


def diff(repo: Path, old: str, new: str, paths: Sequence[str] = ()) -> str:
    """Return the unified diff between two commits, limited to `paths` if given."""
    return run(repo, "diff", "--no-color", "--no-renames", old, new, "--", *paths).decode("utf-8", "replace")


def committed_between(repo: Path, since: datetime, until: datetime) -> list[Change]:
    """Return every path that commits of any local branch changed in a period, oldest first, without merges."""
    period = (f"--since={int(since.timestamp())}", f"--until={int(until.timestamp())}")
    return _history(repo, "--branches", "HEAD", "--reverse", "--no-merges", *period, "--")


def committed_in(repo: Path, commits: Sequence[str]) -> list[Change]:
    """Return every path that these commits changed; unknown commits are skipped."""
    listed = (_history(repo, "--no-walk", "--end-of-options", f"{name}^{{commit}}", "--") for name in commits)
    return [change for found in listed for change in found]


def versions_of(repo: Path, path: str, *, revisions: Sequence[str] = ("--branches", "HEAD")) -> list[Change]:
    """Return the changes of a path in the last 50 commits to it, by default of any local branch, newest first."""
    return _history(repo, *revisions, "--max-count=50", "--", path)


def unmerged_files(repo: Path, prefix: str) -> list[tuple[str, str, bytes]]:
    """Return (branch, path, content) of every file on a branch with this prefix that differs from HEAD's.

    This takes two git processes for any number of branches.
    """
    glob = f"--branches={prefix}*"
    output = run(repo, "log", *_RAW, "--format=%x01%S", glob, "--not", *(["HEAD"] if head(repo) else []))
    wanted = dict.fromkeys((branch, change.path) for branch, change in _raw_changes(output))
    blobs = read_objects(repo, [f"{revision}:{path}" for name, path in wanted for revision in (name, "HEAD")])
    pairs = zip(wanted, blobs[0::2], blobs[1::2], strict=True)
    return [(name, path, ours) for (name, path), ours, theirs in pairs if ours is not None and ours != theirs]


def last_commit_days(folder: Path) -> dict[str, date]:
    """Return the day of the last commit of each file below a folder, from the latest 3,000 commits.

    Files with uncommitted changes are left out. Empty outside of a repository. Raises GitError if git fails.
    """
    listing = ("-n3000", "--format=%x01%cs", "--name-only", "-z", "--relative", "--no-renames", "--", ".")
    log = start(folder, ("log", *listing), timeout_s=30)
    changed = start(folder, ("diff", "--name-only", "-z", "--relative", "HEAD", "--", "."), timeout_s=30)
    days: dict[str, date] = {}
    for commit in log.stdout.split(b"\1")[1:] if not (log.returncode or changed.returncode) else ():
        day, _, paths = commit.partition(b"\0")
        for path in map(os.fsdecode, paths.split(b"\0")):
            if name := path.lstrip("\n"):
                days.setdefault(name, date.fromisoformat(day.decode().strip()))
    dirty = set(map(os.fsdecode, changed.stdout.split(b"\0")))
    return {path: day for path, day in days.items() if path not in dirty}


def files_at(repo: Path, revision: str, *, under: Sequence[str] = (), check: bool = True) -> dict[str, str]:
    """Return path -> blob id of a commit's files at or below the paths `under`; of all files by default.

    Without `check` an unknown commit has no files.
    """
    output = run(repo, "ls-tree", "-r", "-z", "--full-tree", revision, "--", *under, check=check)
    records = (record.partition(b"\t") for record in output.split(b"\0") if record[7:11] == b"blob")
    return {os.fsdecode(path): details.split(b" ")[2].decode() for details, _, path in records}


def read_blob(repo: Path, revision: str, path: str) -> bytes | None:
    """Return the content of one file in a commit, None if the commit has no such file."""
    done = start(repo, ("cat-file", "blob", f"{revision}:{path}"))
    return done.stdout if done.returncode == 0 else None


def read_objects(repo: Path, names: Sequence[str]) -> list[bytes | None]:
    """Return the contents of many blobs in one process, by id or `<revision>:<path>`; None for absent ones.

    Format: git-cat-file(1), BATCH OUTPUT.
    """
    if not names:
        return []
    lines = [name if "\n" not in name else EMPTY_TREE for name in names]  # one name per line
    output = run(repo, "cat-file", "--batch=%(objectsize) %(objecttype)", stdin=os.fsencode("\n".join(lines) + "\n"))
    found: list[bytes | None] = []
    stream = BytesIO(output)
    for _ in names:
        size, _, kind = stream.readline().rstrip(b"\n").rpartition(b" ")
        content = stream.read(int(size) + 1)[:-1] if size.isdigit() and kind != b"missing" else None
        found.append(content if kind == b"blob" else None)
    return found


def branches(repo: Path, prefix: str) -> list[Branch]:
    """Return the local branches whose names start with `prefix`, oldest first."""
    pattern = "%(refname:lstrip=2)%00%(objectname)%00%(committerdate:unix)%00%(contents)%00%01"
    folder = prefix.rpartition("/")[0]
    listed = run(repo, "for-each-ref", "--sort=committerdate", f"--format={pattern}", f"refs/heads/{folder}")
    records = (record.lstrip("\n").split("\0", 3) for record in listed.decode("utf-8", "replace").split("\0\1"))
    return [
        Branch(name=record[0], sha=record[1], committed=_moment(record[2]), message=record[3])
        for record in records
        if len(record) == 4 and record[0].startswith(prefix)
    ]


def has_commit_with(repo: Path, text: str) -> bool:
    """Return True if the message of any commit on a local or remote branch contains `text`."""
    options = ("--fixed-strings", f"--grep={text}", "--max-count=1", "--format=%H")
    return bool(run(repo, "log", "--branches", "--remotes", *options))


def word(repo: Path, *args: str) -> str | None:
    """Return a command's output without surrounding white space, or None if it fails or prints nothing."""
    return run(repo, *args, check=False).decode("utf-8", "replace").strip() or None


def _history(repo: Path, *args: str) -> list[Change]:
    """Return the changes that `git log` lists; none if it fails."""
    done = start(repo, ("log", *_RAW, "--format=%x01%H%x02%ct%x02%B", *args))
    found: list[Change] = []
    for header, change in _raw_changes(done.stdout if done.returncode == 0 else b""):
        commit, seconds, message = header.split("\2", 2)
        text = os.fsencode(message).decode("utf-8", "replace")
        found.append(replace(change, commit=commit, committed=_moment(seconds), message=text))
    return found


def _raw_changes(output: bytes) -> Iterator[tuple[str, Change]]:
    """Yield each change of `--raw -z --no-abbrev` with its commit's header, a `--format` that starts with %x01."""
    header = ""
    tokens = iter(output.split(b"\0"))
    for token in tokens:
        record = token.lstrip(b"\n")
        if record.startswith(b"\1"):
            header = os.fsdecode(record[1:])
        elif record.startswith(b":"):
            _, mode, *blobs, _ = record.decode("ascii").split(" ")
            before, after = (None if set(blob) == {"0"} else blob for blob in blobs)
            yield header, Change(path=os.fsdecode(next(tokens, b"")), before=before, after=after, mode=mode)


def _moment(seconds: str) -> datetime:
    """Return the local time of a commit; a time beyond the calendar becomes the latest possible."""
    return datetime.fromtimestamp(min(int(seconds or 0), _LATEST_S)).astimezone()
