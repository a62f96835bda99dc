"""Following renamed files: where the file that a nugget is about has gone since.

Sessions record the renames that they make; git tells of the others. Git is asked only where a path that nuggets are
scoped to is not there any more, only as far back as the first session, and only for the commits since the last time.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from nugget.errors import GitError
from nugget.index import provenance as stored
from nugget.index.connection import write_transaction
from nugget.infra import git
from nugget.provenance.checkout import Checkout

TIMEOUT_S = 5.0
"""A history that takes longer to look through is given up; renames then stay unknown."""
_RENAME_LIMIT = "-l2000"
_IN_NAME_STATUS = ("--diff-filter=R", "-M", _RENAME_LIMIT, "--name-status", "-z")


def follow_renames(
    connection: sqlite3.Connection, checkout: Checkout, scoped: Iterable[str], *, asked: str | None = None
) -> dict[str, str]:
    """Return old path -> present path of files that were renamed; deleted files are not in it.

    `scoped` are the paths that nuggets are about; `asked` is the one that a question is about, which may be old too.
    """
    gone = [path for path in scoped if not checkout.exists(path)]
    if asked and asked not in gone and not checkout.exists(asked):
        gone.append(asked)
    if not gone:
        return {}
    identity = checkout.workspace.identity
    pairs = stored.touched_renames(connection, identity)
    found = _resolve(gone, pairs, checkout)
    if checkout.workspace.common_dir is not None and (left := [path for path in gone if path not in found]):
        found |= _resolve(left, [*pairs, *_committed(connection, checkout)], checkout)
        if left := [path for path in gone if path not in found]:
            found |= _resolve(left, [*_staged(checkout)], checkout)
    return found | _moved_unnoticed([path for path in gone if path not in found], connection, checkout, asked)


def _resolve(gone: Sequence[str], pairs: Sequence[tuple[str, str]], checkout: Checkout) -> dict[str, str]:
    """Follow each path from rename to rename until it is there. `pairs` are oldest first."""
    steps: Mapping[str, str] = dict(pairs)
    found: dict[str, str] = {}
    for path in gone:
        seen, now = {path}, steps.get(path)
        while now is not None and now not in seen:
            if checkout.exists(now):
                found[path] = now
                break
            seen.add(now)
            now = steps.get(now)
    return found


def _moved_unnoticed(
    gone: Sequence[str], connection: sqlite3.Connection, checkout: Checkout, asked: str | None
) -> dict[str, str]:
    """Files that are gone and whose very content is at the asked path now: moved, and nobody has told git yet."""
    if not gone or not asked or (present := checkout.file(asked).hash) is None:
        return {}
    same = stored.paths_with_hash(connection, checkout.workspace.identity, present)
    return {path: asked for path in gone if path in same}


def _committed(connection: sqlite3.Connection, checkout: Checkout) -> list[tuple[str, str]]:
    """The renames in the history since the first session, remembered from one time to the next."""
    root, identity = checkout.workspace.root, checkout.workspace.identity
    known_head, known_since, known = stored.known_renames(connection, identity)
    earliest: datetime | None = stored.earliest_session(connection, identity)
    since = (earliest.isoformat() if earliest else known_since) or ""
    try:
        head = git.head(root)
        if head is None or (head == known_head and known_since is not None and known_since <= since):
            return known
        is_ahead = (
            known_head and known_since is not None and known_since <= since and _is_ancestor(checkout, known_head)
        )
        span = f"{known_head}..{head}" if is_ahead else head
        arguments = ("log", "--reverse", "--format=", *_IN_NAME_STATUS, *([f"--since={since}"] if since else []), span)
        fresh = list(_pairs(git.run(root, *arguments, timeout_s=TIMEOUT_S)))
    except GitError:
        return known
    renames = [*known, *fresh] if is_ahead else fresh
    try:
        with write_transaction(connection):
            stored.put_renames(connection, identity, head=head, since=since, renames=renames)
    except sqlite3.Error:
        pass  # looked for again next time
    return renames


def _is_ancestor(checkout: Checkout, commit: str) -> bool:
    found = git.run(checkout.workspace.root, "merge-base", commit, "HEAD", check=False).decode().strip()
    return found == commit


def _staged(checkout: Checkout) -> Iterator[tuple[str, str]]:
    """Renames that are staged and not committed yet."""
    if checkout.is_bare:
        return
    try:
        yield from _pairs(
            git.run(checkout.workspace.root, "diff", "--cached", *_IN_NAME_STATUS, "HEAD", check=False,
                    timeout_s=TIMEOUT_S)
        )  # fmt: skip
    except GitError:
        return


def _pairs(output: bytes) -> Iterator[tuple[str, str]]:
    """(old, new) of each `R<score> NUL old NUL new NUL`. Format: git-log(1), --name-status -z."""
    tokens = iter(token.lstrip(b"\n") for token in output.split(b"\0"))
    for token in tokens:
        if token.startswith(b"R") and token[1:].isdigit():
            old, new = next(tokens, b""), next(tokens, b"")
            if old and new:
                yield os.fsdecode(old), os.fsdecode(new)
