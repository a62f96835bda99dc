"""Read commits, branches, files and the state of a checkout."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

from nugget.infra.git.process import run, start

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""The id of the tree without files, to compare with if there is no commit."""
_LATEST_S = 253_370_764_800
"""9999-01-01, so that it is a date in every time zone."""
_IN_PROGRESS = {
    "MERGE_HEAD": "merge", "rebase-merge": "rebase", "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick", "REVERT_HEAD": "revert",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The commit of a checkout (None before the first) and the paths under `domains/` that differ from it.

    `unwatched` are paths that git does not look into: ignored files, ignored folders and nested repositories (with a
    `/` at the end).
    """

    head: str | None
    dirty: tuple[str, ...]
    unwatched: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A local branch with the commit it points at."""

    name: str
    sha: str
    committed: datetime
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One path that differs between two commits; blob ids are None where the path is absent. `mode` is the new one."""

    path: str
    before: str | None
    after: str | None
    mode: str = "100644"


def is_repository(path: Path) -> bool:
    """Return True if `path` is the root of a git checkout (worktrees included)."""
    return (path / ".git").exists()


def head(repo: Path) -> str | None:
    """Return the commit that is checked out, None before the first one."""
    return resolve(repo, "HEAD")


def resolve(repo: Path, revision: str) -> str | None:
    """Return the full id of a commit, None if it does not exist."""
    found = run(repo, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", check=False)
    return found.decode().strip() or None


def current_branch(repo: Path) -> str | None:
    """Return the name of the checked-out branch, None if HEAD is detached."""
    return run(repo, "symbolic-ref", "--quiet", "--short", "HEAD", check=False).decode().strip() or None


def unsettled(repo: Path) -> tuple[str, str] | None:
    """Return why nothing should be committed here now, and the command that changes that; None if it may be.

    Both complete a sentence: "The brain is" "in the middle of a bisect", "`git bisect reset`" "ends that".
    """
    folder = git_dir(repo)
    if operation := next((name for file, name in _IN_PROGRESS.items() if (folder / file).exists()), None):
        return f"in the middle of a {operation}", f"`git {operation} --continue` or `git {operation} --abort`"
    if (folder / "BISECT_LOG").exists():
        return "in the middle of a bisect", "`git bisect reset`"
    return None if current_branch(repo) else ("on a detached HEAD", "`git switch <branch>`")


def git_dir(repo: Path) -> Path:
    """Return the `.git` folder of a checkout; for a linked worktree, the folder its `.git` file names."""
    entry = repo / ".git"
    if not entry.is_file():
        return entry
    named = entry.read_text("utf-8", "replace").removeprefix("gitdir:").strip()
    return (repo / named).resolve()


def state(repo: Path) -> State:
    """Return the commit and the uncommitted paths under `domains/`, from one `git status` that takes no lock."""
    output = run(
        repo, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all", "--no-renames",
        "--ignored=matching", "--", "domains",
    )  # fmt: skip
    commit: str | None = None
    dirty: list[str] = []
    unwatched: list[str] = []
    for record in output.split(b"\0"):
        kind = record[:1]
        if record.startswith(b"# branch.oid "):
            named = record[13:].decode()
            commit = None if named == "(initial)" else named
        elif kind in b"1u?!" and record:
            fields_before_path = {b"1": 8, b"u": 10, b"?": 1, b"!": 1}[kind]
            path = os.fsdecode(record.split(b" ", fields_before_path)[fields_before_path])
            (unwatched if kind == b"!" or path.endswith("/") else dirty).append(path)
    return State(head=commit, dirty=tuple(dirty), unwatched=tuple(unwatched))


def changed_between(repo: Path, old: str, new: str) -> list[str] | None:
    """Return the paths under `domains/` that differ between two commits; None if either is unknown here."""
    arguments = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new, "--", "domains")
    completed = start(repo, arguments)
    return _paths(completed.stdout) if completed.returncode == 0 else None


def changes(repo: Path, old: str, new: str) -> list[Change]:
    """Return every path that differs between two commits, with both blob ids."""
    output = run(repo, "diff-tree", "-r", "-z", "--no-renames", "--no-abbrev", old, new)
    return [change for _, change in raw_changes(output)]


def raw_changes(output: bytes) -> Iterator[tuple[str, Change]]:
    """Yield each change of `--raw -z --no-abbrev` with the header of its commit, a `--format` that begins with %x01."""
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


def diff(repo: Path, old: str, new: str, paths: Sequence[str] = ()) -> str:
    """Return the unified diff between two commits, limited to `paths` if given."""
    output = run(repo, "diff", "--no-color", "--no-renames", old, new, "--", *paths)
    return output.decode("utf-8", "replace")


def last_commit_days(folder: Path, *, max_commits: int = 3000) -> dict[str, date]:
    """Return the day of the last commit of each file below a folder, as far as the latest commits show it.

    Files with uncommitted changes are left out. Empty outside of a repository. Raises GitError if git is missing or
    takes too long.
    """
    log = start(
        folder, ("log", f"-n{max_commits}", "--format=%x01%cs", "--name-only", "-z", "--relative", "--no-renames",
                 "--", "."), timeout_s=30,
    )  # fmt: skip
    status = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=no", "--", ".")
    changed = start(folder, status, timeout_s=30)
    if log.returncode or changed.returncode:
        return {}
    top = run(folder, "rev-parse", "--show-prefix").decode("utf-8", "replace").strip()
    dirty = {os.fsdecode(record[3:]).removeprefix(top) for record in changed.stdout.split(b"\0")}
    days: dict[str, date] = {}
    for commit in log.stdout.split(b"\1")[1:]:
        day, _, paths = commit.partition(b"\0")
        for path in map(os.fsdecode, paths.split(b"\0")):
            if name := path.lstrip("\n"):
                days.setdefault(name, date.fromisoformat(day.decode().strip()))
    return {path: day for path, day in days.items() if path not in dirty}


def merge_base(repo: Path, one: str, other: str) -> str | None:
    """Return the best common ancestor of two commits, None if they share no history."""
    return run(repo, "merge-base", one, other, check=False).decode().strip() or None


def files_at(repo: Path, revision: str, *, under: str | tuple[str, ...] = (), check: bool = True) -> dict[str, str]:
    """Return path -> blob id of every file of a commit that is one of `under` or below one; of all files by default.

    Without `check` an unknown commit has no files.
    """
    paths = (under,) if isinstance(under, str) else under
    output = run(repo, "ls-tree", "-r", "-z", "--full-tree", revision, "--", *paths, check=check)
    listed: dict[str, str] = {}
    for record in output.split(b"\0"):
        details, _, path = record.partition(b"\t")
        if details[7:11] == b"blob":
            listed[os.fsdecode(path)] = details.split(b" ")[2].decode()
    return listed


def read_blob(repo: Path, revision: str, path: str) -> bytes | None:
    """Return the content of one file in a commit, None if the commit has no such file."""
    completed = start(repo, ("cat-file", "blob", f"{revision}:{path}"))
    return completed.stdout if completed.returncode == 0 else None


def local_moment(seconds: int) -> datetime:
    """Return the time of a commit in the local zone; a time beyond the calendar becomes the latest possible."""
    return datetime.fromtimestamp(min(seconds, _LATEST_S)).astimezone()


def branches(repo: Path, prefix: str) -> list[Branch]:
    """Return the local branches whose names start with `prefix`, oldest first."""
    pattern = "%(refname:lstrip=2)%00%(objectname)%00%(committerdate:unix)%00%(contents)%00%01"
    folder = prefix.rpartition("/")[0]
    listed = run(repo, "for-each-ref", "--sort=committerdate", f"--format={pattern}", f"refs/heads/{folder}")
    found: list[Branch] = []
    for record in listed.decode("utf-8", "replace").split("\0\1"):
        if record.strip("\n"):
            name, sha, seconds, message = record.lstrip("\n").split("\0", 3)
            if name.startswith(prefix):
                moment = local_moment(int(seconds))
                found.append(Branch(name=name, sha=sha, committed=moment, message=message))
    return found


def unmerged_files(repo: Path, prefix: str) -> list[tuple[str, str, bytes]]:
    """Return (branch, path, content) of every file that a branch with this prefix changes and HEAD has otherwise.

    Two git processes, however many branches there are.
    """
    glob = f"--branches={prefix}*"
    arguments = ("--format=%x01%S", "--raw", "-z", "--no-renames", "--no-abbrev", "--root", glob)
    output = run(repo, "log", *arguments, "--not", *(["HEAD"] if head(repo) else []))
    wanted = dict.fromkeys((branch, change.path) for branch, change in raw_changes(output))
    readable = [(name, path) for name, path in wanted if "\n" not in path]
    asked = [f"{revision}:{path}" for name, path in readable for revision in (name, "HEAD")]
    blobs = read_objects(repo, asked)
    pairs = zip(readable, blobs[0::2], blobs[1::2], strict=True)
    return [(name, path, ours) for (name, path), ours, theirs in pairs if ours is not None and ours != theirs]


def read_objects(repo: Path, names: Sequence[str]) -> list[bytes | None]:
    """Return the contents of many blobs in one process, by id or `<revision>:<path>`; None for those that are absent.

    Format: git-cat-file(1), BATCH OUTPUT.
    """
    if not names:
        return []
    output = run(repo, "cat-file", "--batch=%(objectsize) %(objecttype)", stdin=os.fsencode("\n".join(names) + "\n"))
    found: list[bytes | None] = []
    position = 0
    for _ in names:
        end = output.index(b"\n", position)
        words = output[position:end].split(b" ")
        position = end + 1
        if len(words) == 2 and words[0].isdigit():
            size = int(words[0])
            found.append(output[position : position + size] if words[1] == b"blob" else None)
            position += size + 1
        else:
            found.append(None)
    return found


def has_commit_with(repo: Path, text: str) -> bool:
    """Return True if the message of any commit on a local or remote branch contains `text`."""
    asked = ("--fixed-strings", f"--grep={text}", "--max-count=1", "--format=%H")
    return bool(run(repo, "log", "--branches", "--remotes", *asked))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedChange:
    """One path that a commit changed, with its blobs; None if the path is absent on that side."""

    commit: str
    committed: int
    path: str
    before: str | None
    after: str | None


def commit_before(repo: Path, moment: datetime) -> str | None:
    """Return the last commit of the checked-out branch up to a moment, None if there is none."""
    found = run(repo, "rev-list", "--max-count=1", f"--before={int(moment.timestamp())}", "HEAD", check=False)
    return found.decode().strip() or None


def committed_between(repo: Path, since: datetime, until: datetime) -> list[CommittedChange]:
    """Return every path that commits of any local branch changed in a period, oldest first, without merges."""
    period = (f"--since={int(since.timestamp())}", f"--until={int(until.timestamp())}")
    shown = ("--raw", "-z", "--no-renames", "--no-abbrev", "--root", "--no-merges", "--format=%x01%H %ct")
    completed = start(repo, ("log", "--branches", "HEAD", "--reverse", *period, *shown, "--"))
    return _changes(completed.stdout) if completed.returncode == 0 else []


def committed_in(repo: Path, commits: Sequence[str]) -> list[CommittedChange]:
    """Return every path that these commits changed; names of commits that do not exist are skipped."""
    found: list[CommittedChange] = []
    for name in commits:
        shown = ("--raw", "-z", "--no-renames", "--no-abbrev", "--root", "--no-walk", "--format=%x01%H %ct")
        completed = start(repo, ("log", *shown, "--end-of-options", f"{name}^{{commit}}", "--"))
        found += _changes(completed.stdout) if completed.returncode == 0 else []
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PathVersion:
    """A commit that changed a path, and the blob that it put there (None where it removed it)."""

    commit: str
    committed: datetime
    message: str
    blob: str | None


def versions_of(repo: Path, path: str, *, limit: int = 50) -> list[PathVersion]:
    """Return the last commits of any local branch that changed a path, newest first."""
    shown = ("--raw", "-z", "--no-renames", "--no-abbrev", "--root", "--format=%x01%H%x02%ct%x02%B")
    completed = start(repo, ("log", "--branches", "HEAD", f"--max-count={limit}", *shown, "--", path))
    found: list[PathVersion] = []
    for header, change in raw_changes(completed.stdout if completed.returncode == 0 else b""):
        commit, _, rest = header.partition("\2")
        seconds, _, message = rest.partition("\2")
        moment = local_moment(int(seconds)) if seconds.isdecimal() else local_moment(0)
        text = os.fsencode(message).decode("utf-8", "replace")
        found.append(PathVersion(commit=commit, committed=moment, message=text, blob=change.after))
    return found


def _changes(output: bytes) -> list[CommittedChange]:
    """Return the changes of `git log --raw -z` with a header `\\1<commit> <seconds>` for each commit."""
    found: list[CommittedChange] = []
    for header, change in raw_changes(output):
        commit, _, seconds = header.strip().partition(" ")
        moment = int(seconds) if seconds.isdecimal() else 0
        found.append(
            CommittedChange(commit=commit, committed=moment, path=change.path, before=change.before, after=change.after)
        )
    return found


def _paths(output: bytes) -> list[str]:
    return [os.fsdecode(path) for path in output.split(b"\0") if path]
