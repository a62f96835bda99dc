"""Commits and branches, written so that nothing else of the user's changes."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from nugget.errors import GitError
from nugget.infra.git.locking import wait_until_free
from nugget.infra.git.process import Setting, environment, run, start, user_settings
from nugget.infra.git.reading import head, resolve

_NO_OBJECT = "0" * 40


def init(path: Path) -> None:
    """Make `path` a git repository on its configured first branch, else `main`."""
    named = run(path, "config", "--get", "init.defaultBranch", check=False).decode().strip()
    run(path, "init", "--quiet", f"--initial-branch={named or 'main'}")


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
            repo, "commit", "--quiet", "--no-verify", "--cleanup=verbatim", f"--file={text}", "--only", *from_stdin,
            stdin=listed, settings=_settings(repo, _config(repo)),
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
    parents = [parent] if parent else []
    return commit_files(repo, files=files, message=message, parents=parents, now=now, branch=name)


def commit_files(
    repo: Path,
    *,
    files: Mapping[str, bytes | None],
    message: str,
    parents: Sequence[str],
    now: datetime,
    branch: str | None = None,
) -> str:
    """A commit with the first parent's tree changed by `files`, and `branch`, which must be new, pointing at it.

    Written with `git fast-import` (git-fast-import(1)), signed afterwards where `commit.gpgsign` asks for it.
    """
    config = _config(repo)
    person = _person(config)
    # fast-import wants a branch; deleted in the same stream, it never exists outside of it.
    passing = "refs/nugget/passing"
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
    stream.append(f"\nget-mark :1\nreset {passing}\nfrom {_NO_OBJECT}\n\ndone\n".encode())
    printed = run(repo, "fast-import", "--quiet", "--date-format=raw", stdin=b"".join(stream)).decode().split()
    sha = printed[-1]
    if config.get("commit.gpgsign", "false").lower() in ("", "true", "yes", "on", "1"):
        links = [part for parent in parents for part in ("-p", parent)]
        dates = {"GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment}
        arguments = ("commit-tree", "-S", *links, "-F", "-", f"{sha}^{{tree}}")
        signed = run(repo, *arguments, stdin=text, variables=dates, settings=_settings(repo, config))
        sha = signed.decode().strip()
    if branch:
        run(repo, "update-ref", "-m", "nugget: proposal", f"refs/heads/{branch}", sha, _NO_OBJECT)
    return sha


def fast_forward(repo: Path, sha: str) -> None:
    """Move the checked-out branch and its files to `sha`, a descendant of HEAD.

    git itself refuses, before it changes anything, when a file that would change has uncommitted work in it;
    all other uncommitted work stays as it is. Where HEAD or a branch is locked it would change files and index alone,
    so that is looked at before. Raises GitError; nothing was changed then.
    """
    wait_until_free(repo)
    run(repo, "merge", "--quiet", "--ff-only", "--no-autostash", "--no-verify-signatures", sha)


def delete_branch(repo: Path, name: str, *, expect: str) -> None:
    """Delete a local branch that still points at `expect`. Raises GitError when it moved or is checked out."""
    refuse_checked_out(repo, name)
    run(repo, "update-ref", "-d", f"refs/heads/{name}", expect)


def move_branch(repo: Path, name: str, sha: str, *, expect: str) -> None:
    """Let a branch that still points at `expect` point at `sha`. Raises GitError when it moved or is checked out."""
    refuse_checked_out(repo, name)
    run(repo, "update-ref", "-m", "nugget: review", f"refs/heads/{name}", sha, expect)


def check_branch_name(repo: Path, name: str) -> None:
    """Raise GitError where git would not take `name` for a branch."""
    if name.startswith("-") or start(repo, ("check-ref-format", "--branch", name)).returncode != 0:
        raise GitError(f"{name!r} is no valid branch name.")


def merge_files(ours: bytes, base: bytes, theirs: bytes) -> bytes | None:
    """The three-way merge of one text file, None where both sides changed the same lines."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("ours", ours), ("base", base), ("theirs", theirs)):
            (Path(folder) / name).write_bytes(content)
        completed = start(Path(folder), ("merge-file", "-p", "ours", "base", "theirs"))
    return completed.stdout if completed.returncode == 0 else None


def refuse_checked_out(repo: Path, name: str) -> None:
    """Raise GitError where a branch is checked out, here or in another worktree, so that it cannot be moved."""
    checked_out = run(repo, "for-each-ref", "--format=%(worktreepath)", f"refs/heads/{name}").decode().strip()
    if checked_out:
        raise GitError(f"{name} is checked out in {checked_out}.", hint="Switch to another branch there first.")


def _config(repo: Path) -> dict[str, str]:
    """What the user's configuration says about who commits, and whether commits are signed."""
    asked = r"^(user\.(name|email)|commit\.gpgsign)$"
    listed = run(repo, "config", "-z", "--get-regexp", asked, check=False).decode("utf-8", "replace")
    pairs = (entry.partition("\n") for entry in listed.split("\0") if entry)
    return {key: value for key, _, value in pairs}


def _settings(repo: Path, config: Mapping[str, str]) -> list[Setting]:
    """Return what a commit needs: the user's own signing programs, and Nugget's name if the user has given none."""
    variables = environment()
    settings = user_settings(repo, r"^gpg\.")
    for key, fallback in (("name", "Nugget"), ("email", "nugget@localhost")):
        given = f"GIT_COMMITTER_{key.upper()}" in variables and f"GIT_AUTHOR_{key.upper()}" in variables
        if not given and f"user.{key}" not in config:
            settings.append((f"user.{key}", fallback))
    return settings


def _person(config: Mapping[str, str]) -> str:
    """The committer as fast-import takes it: `Name <email>`."""
    variables = environment()
    name = variables.get("GIT_COMMITTER_NAME") or config.get("user.name") or "Nugget"
    email = variables.get("GIT_COMMITTER_EMAIL") or config.get("user.email") or "nugget@localhost"
    name, email = (re.sub(r"[<>\x00-\x1f]", "", part).strip() for part in (name, email))
    return f"{name} <{email}>"


def _quote(path: str) -> bytes:
    """A path as fast-import takes it: C-style quoted, so that any byte but NUL may occur."""
    raw = os.fsencode(path)
    if b"\0" in raw:
        raise GitError(f"{path!r} is no possible path.")
    return b'"' + raw.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'
