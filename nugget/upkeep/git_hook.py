"""The prepare-commit-msg hook in a code repository: put in beside a hook that is there, and taken out without a trace.

A hook of somebody else's is kept beside ours under another name and run first, with its arguments; if it fails, the
commit fails as it did before. Only our own file is ever written or removed.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from nugget.errors import InstallError
from nugget.infra import git

_NAME = "prepare-commit-msg"
KEPT = f"{_NAME}.before-nugget"
_MARK = "# Nugget's prepare-commit-msg hook."


def install_hook(repo: Path, *, command: Path, dry_run: bool) -> Iterator[str]:
    """Put the hook into the repository that holds `repo`, and yield what was done.

    Raises GitError outside of git, InstallError if a kept hook is in the way or a file cannot be written: everything
    is then as it was.
    """
    hook, scope = _hook_file(repo)
    kept, script = hook.with_name(KEPT), _script(command)
    is_foreign = os.path.lexists(hook) and not _is_ours(hook)
    if not is_foreign and hook.exists() and hook.read_text("utf-8") == script:
        yield f"{hook} is there already; nothing to change."
        return
    if is_foreign and os.path.lexists(kept):
        raise InstallError(
            f"{hook} is not Nugget's, and {kept} is there as well.", hint=f"Put them together, or remove {kept}."
        )
    if dry_run:
        yield f"Would {f'keep the hook that is there as {KEPT} and ' if is_foreign else ''}write {hook}"
        return
    try:
        hook.parent.mkdir(parents=True, exist_ok=True)
        made = hook.with_name(f"{_NAME}.nugget-{os.getpid()}")
        made.write_text(script, "utf-8")
        made.chmod(0o755)
        if is_foreign:
            hook.rename(kept)
        made.replace(hook)
    except OSError as error:
        raise InstallError(f"{hook} cannot be written: {error.strerror or error}.") from error
    yield f"Wrote {hook}"
    if is_foreign:
        yield f"The hook that was there is kept as {KEPT} beside it, and runs first."
    if scope in ("global", "system"):
        yield f"core.hooksPath is set for all repositories ({scope}): the hook runs in each of them."
    yield "`git commit` proposes a message if an agent had a part. `nugget uninstall git-hook` undoes this."


def uninstall_hook(repo: Path, *, dry_run: bool) -> Iterator[str]:
    """Remove our hook, put the kept one back in its place, and yield what was done. Raises GitError, InstallError."""
    hook, _ = _hook_file(repo)
    kept = hook.with_name(KEPT)
    if not _is_ours(hook):
        yield "Nugget's hook is not in this repository; nothing to change."
    elif dry_run:
        yield f"Would remove {hook}."
    else:
        is_kept = os.path.lexists(kept)
        try:
            kept.replace(hook) if is_kept else hook.unlink()
        except OSError as error:
            raise InstallError(f"{hook} cannot be removed: {error.strerror or error}.") from error
        yield f"Removed {hook}{'; the hook that was there before is back' if is_kept else ''}."


def _hook_file(repo: Path) -> tuple[Path, str | None]:
    """Return the path of the repository's hook, and the scope in which `core.hooksPath` is set. Raises GitError."""
    asked = ("rev-parse", "--path-format=absolute", "--git-common-dir", "--show-toplevel")
    common, *top = os.fsdecode(git.run(repo, *asked)).removesuffix("\n").split("\n")
    set_by = git.run(repo, "config", "--type=path", "--show-scope", "--get-all", "core.hooksPath", check=False)
    folder, scope = Path(common) / "hooks", None
    for line in os.fsdecode(set_by).split("\n"):
        origin, _, value = line.partition("\t")
        if value and origin != "command":  # the scope in which our own git processes switch hooks off
            folder, scope = Path(top[0] if top else common, value), origin
    return folder / _NAME, scope


def _is_ours(hook: Path) -> bool:
    return hook.is_file() and _MARK.encode() in hook.read_bytes()


def _script(command: Path) -> str:
    """Return the hook: the kept one first, if there is one, then Nugget, which never stops a commit."""
    return f"""#!/bin/sh
{_MARK} `nugget uninstall git-hook` takes it out again.
kept="${{0%/*}}/{KEPT}"
if [ -x "$kept" ]; then
    "$kept" "$@" || exit $?
fi
nugget={shlex.quote(str(command))}
[ -x "$nugget" ] || nugget=nugget
"$nugget" commit --hook "$@" </dev/null >/dev/null 2>&1
exit 0
"""
