"""The one gateway to git: plain subprocesses with a cleaned environment.

Nothing here runs the user's hooks, asks for a password, or opens an editor; every failure is a GitError that
carries git's own first sentence. The brain is the root of its repository, so every path is relative to it.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nugget.config import read_environment
from nugget.errors import GitError

_KEPT_VARIABLES = frozenset({
    "GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_ASKPASS", "GIT_EXEC_PATH", "GIT_CONFIG_NOSYSTEM",
    "GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSL_NO_VERIFY",
    "GIT_PROXY_COMMAND", "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL",
})
_NO_HOOKS = f"core.hooksPath={os.devnull}"
_ALWAYS = ("--literal-pathspecs", "-c", _NO_HOOKS, "-c", "gc.auto=0", "-c", "maintenance.auto=false")
_NO_OBJECT = "0" * 40
_IN_PROGRESS = {
    "MERGE_HEAD": "merge", "rebase-merge": "rebase", "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick", "REVERT_HEAD": "revert",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Where a checkout stands: its commit (None before the first) and what differs from it under `domains/`."""

    head: str | None
    dirty: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A local branch with the commit it points at."""

    name: str
    sha: str
    committed: datetime
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One path that differs between two commits; blob ids are None where the path is absent."""

    path: str
    before: str | None
    after: str | None


def environment() -> dict[str, str]:
    """The variables for a git process: ours without GIT_DIR and its like, and with every prompt switched off."""
    kept = {
        name: value
        for name, value in read_environment().variables.items()
        if not name.startswith("GIT_") or name in _KEPT_VARIABLES
    }
    return kept | {"GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": ":", "GIT_PAGER": "cat", "LC_ALL": "C"}


def run(
    repo: Path,
    *args: str,
    stdin: bytes | None = None,
    check: bool = True,
    variables: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
) -> bytes:
    """Standard output of `git <args>` in `repo`; `variables` are set on top of the cleaned environment.

    Raises GitError when git is missing, does not end in time, or (with `check`) fails.
    """
    completed = _start(repo, args, stdin=stdin, variables=variables, timeout_s=timeout_s)
    if check and completed.returncode != 0:
        raise GitError(f"git {_verb(args)} failed in {repo}: {_complaint(completed)}", hint=_hint(completed.stderr))
    return completed.stdout


def is_repository(path: Path) -> bool:
    """Whether `path` is the root of a git checkout (worktrees included)."""
    return (path / ".git").exists()


def init(path: Path) -> None:
    """Make `path` a git repository on its configured first branch, else `main`."""
    named = run(path, "config", "--get", "init.defaultBranch", check=False).decode().strip()
    run(path, "init", "--quiet", f"--initial-branch={named or 'main'}")


def head(repo: Path) -> str | None:
    """The commit that is checked out, None before the first one."""
    return resolve(repo, "HEAD")


def resolve(repo: Path, revision: str) -> str | None:
    """The full id of a commit, None where there is no such commit."""
    found = run(repo, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", check=False)
    return found.decode().strip() or None


def current_branch(repo: Path) -> str | None:
    """The name of the checked-out branch, None when HEAD is detached."""
    return run(repo, "symbolic-ref", "--quiet", "--short", "HEAD", check=False).decode().strip() or None


def operation_in_progress(repo: Path) -> str | None:
    """`merge`, `rebase`, `cherry-pick` or `revert` while one is unfinished, else None."""
    folder = git_dir(repo)
    return next((name for file, name in _IN_PROGRESS.items() if (folder / file).exists()), None)


def git_dir(repo: Path) -> Path:
    """The `.git` folder of a checkout; for a linked worktree, the folder its `.git` file names."""
    entry = repo / ".git"
    if not entry.is_file():
        return entry
    named = entry.read_text("utf-8", "replace").removeprefix("gitdir:").strip()
    return (repo / named).resolve()


def state(repo: Path) -> State:
    """Commit and uncommitted paths under `domains/`, from one `git status` that takes no lock."""
    output = run(
        repo, "--no-optional-locks", "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all",
        "--no-renames", "--", "domains",
    )  # fmt: skip
    commit: str | None = None
    dirty: list[str] = []
    for record in output.split(b"\0"):
        kind = record[:1]
        if record.startswith(b"# branch.oid "):
            named = record[13:].decode()
            commit = None if named == "(initial)" else named
        elif kind in b"1u?" and record:
            fields_before_path = {b"1": 8, b"u": 10, b"?": 1}[kind]
            dirty.append(os.fsdecode(record.split(b" ", fields_before_path)[fields_before_path]))
    return State(head=commit, dirty=tuple(dirty))


def changed_between(repo: Path, old: str, new: str) -> list[str] | None:
    """Paths under `domains/` that differ between two commits; None where either is unknown here."""
    arguments = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new, "--", "domains")
    completed = _start(repo, arguments)
    return _paths(completed.stdout) if completed.returncode == 0 else None


def changes(repo: Path, old: str, new: str) -> list[Change]:
    """Every path that differs between two commits, with both blob ids."""
    output = run(repo, "diff-tree", "-r", "-z", "--no-renames", "--no-abbrev", old, new)
    records = output.split(b"\0")
    found: list[Change] = []
    for details, path in zip(records[0::2], records[1::2], strict=False):
        _, _, before, after, _ = details.decode("ascii").split(" ")
        found.append(Change(path=os.fsdecode(path), before=_object(before), after=_object(after)))
    return found


def diff(repo: Path, old: str, new: str, paths: Sequence[str] = ()) -> str:
    """The unified diff between two commits, limited to `paths` when given."""
    output = run(repo, "diff", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", old, new, "--", *paths)
    return output.decode("utf-8", "replace")


def merge_base(repo: Path, one: str, other: str) -> str | None:
    """The best common ancestor of two commits, None where they share no history."""
    return run(repo, "merge-base", one, other, check=False).decode().strip() or None


def files_at(repo: Path, revision: str, *, under: str = "") -> dict[str, str]:
    """Path -> blob id of every file of a commit, below the folder `under`."""
    output = run(repo, "ls-tree", "-r", "-z", "--full-tree", revision, *(["--", under] if under else []))
    listed: dict[str, str] = {}
    for record in output.split(b"\0"):
        details, _, path = record.partition(b"\t")
        if details[7:11] == b"blob":
            listed[os.fsdecode(path)] = details.split(b" ")[2].decode()
    return listed


def read_blob(repo: Path, revision: str, path: str) -> bytes | None:
    """The content of one file in a commit, None where the commit has no such file."""
    completed = _start(repo, ("cat-file", "blob", f"{revision}:{path}"))
    return completed.stdout if completed.returncode == 0 else None


def branches(repo: Path, prefix: str) -> list[Branch]:
    """Local branches whose names start with `prefix`, oldest first."""
    pattern = "%(refname:lstrip=2)%00%(objectname)%00%(committerdate:unix)%00%(contents)%00%01"
    folder = prefix.rpartition("/")[0]
    listed = run(repo, "for-each-ref", "--sort=committerdate", f"--format={pattern}", f"refs/heads/{folder}")
    found: list[Branch] = []
    for record in listed.decode("utf-8", "replace").split("\0\1"):
        if record.strip("\n"):
            name, sha, seconds, message = record.lstrip("\n").split("\0", 3)
            if name.startswith(prefix):
                moment = datetime.fromtimestamp(int(seconds)).astimezone()
                found.append(Branch(name=name, sha=sha, committed=moment, message=message))
    return found


def commit_paths(repo: Path, paths: Iterable[str], message: str) -> str | None:
    """Commit exactly these paths as they are in the work tree; None when none of them changed.

    Whatever else the user has staged stays staged and uncommitted.
    """
    wanted = list(paths)
    listed = "\0".join(wanted).encode("utf-8", "surrogateescape")
    present = "\0".join(path for path in wanted if os.path.lexists(repo / path)).encode("utf-8", "surrogateescape")
    from_stdin = ("--pathspec-from-file=-", "--pathspec-file-nul")
    if present:
        run(repo, "add", "--force", "--intent-to-add", *from_stdin, stdin=present)
    if not wanted or not run(repo, "status", "--porcelain", "-z", "--untracked-files=all", "--", *wanted):
        return None
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "message"
        text.write_text(message, "utf-8")
        run(
            repo, *_identity(repo), "commit", "--quiet", "--no-verify", "--cleanup=verbatim", f"--file={text}",
            "--only", *from_stdin, stdin=listed,
        )  # fmt: skip
    return head(repo)


def create_branch(
    repo: Path,
    name: str,
    *,
    files: Mapping[str, bytes | None],
    message: str,
    now: datetime,
    base: str | None = "HEAD",
) -> str:
    """A new local branch with one commit that writes (bytes) or deletes (None) `files` on top of `base`.

    Neither index nor work tree is touched. Raises GitError when the branch exists already: two processes that
    make the same branch leave one of it. `base=None` makes a commit without a parent.
    """
    check_branch_name(repo, name)
    parent = resolve(repo, base) if base else None
    if base and parent is None:
        raise GitError(f"{repo} has no commit {base} to start {name} from.", hint="Run `nugget init` in the brain.")
    sha = commit_files(repo, files=files, message=message, parents=[parent] if parent else [], now=now)
    run(repo, "update-ref", "-m", "nugget: proposal", f"refs/heads/{name}", sha, _NO_OBJECT)
    return sha


def commit_files(
    repo: Path, *, files: Mapping[str, bytes | None], message: str, parents: Sequence[str], now: datetime
) -> str:
    """A commit object with the first parent's tree changed by `files`; no branch points at it yet.

    Written with `git fast-import` (git-fast-import(1)), signed afterwards where `commit.gpgsign` asks for it.
    """
    person = _person(repo)
    passing = f"refs/nugget/passing/{uuid.uuid4().hex}"
    moment = f"{int(now.timestamp())} {now.strftime('%z') or '+0000'}"
    text = message.encode("utf-8", "replace")
    stream = [f"feature done\ncommit {passing}\nmark :1\ncommitter {person} {moment}\n".encode()]
    stream.append(b"data %d\n%s\n" % (len(text), text))
    for verb, parent in zip(["from", *["merge"] * len(parents)], parents, strict=False):
        stream.append(f"{verb} {parent}\n".encode())
    for path, content in files.items():
        quoted = _quote(path)
        if content is None:
            stream.append(b"D %s\n" % quoted)
        else:
            stream.append(b"M 100644 inline %s\ndata %d\n%s\n" % (quoted, len(content), content))
    stream.append(b"\nget-mark :1\ndone\n")
    printed = run(repo, "fast-import", "--quiet", "--date-format=raw", stdin=b"".join(stream)).decode().split()
    sha = printed[-1]
    if _wants_signature(repo):
        links = [part for parent in parents for part in ("-p", parent)]
        dates = {"GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment}
        arguments = (*_identity(repo), "commit-tree", "-S", *links, "-F", "-", f"{sha}^{{tree}}")
        sha = run(repo, *arguments, stdin=text, variables=dates).decode().strip()
    run(repo, "update-ref", "-d", passing)
    return sha


def fast_forward(repo: Path, sha: str) -> None:
    """Move the checked-out branch and its files to `sha`, a descendant of HEAD.

    git itself refuses, before it changes anything, when a file that would change has uncommitted work in it;
    all other uncommitted work stays as it is. Raises GitError then.
    """
    run(repo, "merge", "--quiet", "--ff-only", "--no-autostash", "--no-verify-signatures", sha)


def delete_branch(repo: Path, name: str, *, expect: str) -> None:
    """Delete a local branch that still points at `expect`. Raises GitError when it moved or is checked out."""
    checked_out = run(repo, "for-each-ref", "--format=%(worktreepath)", f"refs/heads/{name}").decode().strip()
    if checked_out:
        raise GitError(f"{name} is checked out in {checked_out}.", hint="Switch to another branch there first.")
    run(repo, "update-ref", "-d", f"refs/heads/{name}", expect)


def check_branch_name(repo: Path, name: str) -> None:
    """Raise GitError where git would not take `name` for a branch."""
    if name.startswith("-") or _start(repo, ("check-ref-format", "--branch", name)).returncode != 0:
        raise GitError(f"{name!r} is no valid branch name.")


def has_commit_with(repo: Path, text: str) -> bool:
    """Whether the message of any commit, on any branch, contains `text`."""
    if head(repo) is None and not branches(repo, ""):
        return False
    return bool(run(repo, "log", "--all", "--fixed-strings", f"--grep={text}", "--max-count=1", "--format=%H"))


def merge_files(ours: bytes, base: bytes, theirs: bytes) -> bytes | None:
    """The three-way merge of one text file, None where both sides changed the same lines."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("ours", ours), ("base", base), ("theirs", theirs)):
            (Path(folder) / name).write_bytes(content)
        completed = _start(Path(folder), ("merge-file", "-p", "ours", "base", "theirs"))
    return completed.stdout if completed.returncode == 0 else None


def _start(
    repo: Path,
    args: Sequence[str],
    *,
    stdin: bytes | None = None,
    variables: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["git", *_ALWAYS, *args],
            cwd=repo,
            env=environment() | dict(variables or {}),
            input=stdin if stdin is not None else b"",
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError as error:
        if not repo.is_dir():
            raise GitError(f"{repo} does not exist.") from error
        raise GitError("git is not installed, or not on the PATH.", hint="Install git and run this again.") from error
    except subprocess.TimeoutExpired as error:
        raise GitError(f"git {_verb(args)} did not end within {timeout_s:g} s in {repo}.") from error
    except (OSError, ValueError) as error:
        raise GitError(f"git {_verb(args)} could not be started in {repo} ({error}).") from error


def _verb(args: Sequence[str]) -> str:
    remaining = iter(args)
    for word in remaining:
        if word == "-c":
            next(remaining, None)
        elif not word.startswith("-"):
            return word
    return ""


def _complaint(completed: subprocess.CompletedProcess[bytes]) -> str:
    lines = [line.strip() for line in completed.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    marked = [line for line in lines if line.startswith(("fatal:", "error:"))]
    chosen = (marked or lines or [f"exit code {completed.returncode}"])[0]
    return chosen.removeprefix("fatal: ").removeprefix("error: ")


def _hint(stderr: bytes) -> str | None:
    if b"dubious ownership" in stderr:
        return "The folder belongs to another user; `git config --global --add safe.directory <folder>` trusts it."
    if b".lock': File exists" in stderr:
        return "Another git process is at work there; when there is none, delete the lock file that git names."
    return None


def _identity(repo: Path) -> list[str]:
    """`-c` options that name Nugget as the committer where the user has not named themselves."""
    known = run(repo, "config", "--get-regexp", r"^user\.(name|email)$", check=False).decode("utf-8", "replace")
    variables = environment()
    options: list[str] = []
    for key, fallback in (("name", "Nugget"), ("email", "nugget@localhost")):
        given = f"GIT_COMMITTER_{key.upper()}" in variables and f"GIT_AUTHOR_{key.upper()}" in variables
        if not given and f"user.{key} " not in known:
            options += ["-c", f"user.{key}={fallback}"]
    return options


def _person(repo: Path) -> str:
    ident = run(repo, *_identity(repo), "var", "GIT_COMMITTER_IDENT").decode("utf-8", "replace").strip()
    return ident.rsplit(" ", 2)[0]


def _wants_signature(repo: Path) -> bool:
    return run(repo, "config", "--type=bool", "--get", "commit.gpgsign", check=False).strip() == b"true"


def _quote(path: str) -> bytes:
    """A path as fast-import takes it: C-style quoted, so that any byte but NUL may occur."""
    raw = os.fsencode(path)
    if b"\0" in raw:
        raise GitError(f"{path!r} is no possible path.")
    return b'"' + raw.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'


def _paths(output: bytes) -> list[str]:
    return [os.fsdecode(path) for path in output.split(b"\0") if path]


def _object(sha: str) -> str | None:
    return None if set(sha) == {"0"} else sha
