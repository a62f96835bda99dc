"""The prepare-commit-msg hook in a code repository: put in beside a hook that is there, and taken out without a trace.

A hook of somebody else's is kept beside ours under another name and run first, with its arguments; if it fails, the
commit fails as it did before. Only our own file is ever written or removed.
"""

from __future__ import annotations

import os
import shlex
import stat
from dataclasses import dataclass
from pathlib import Path

from nugget.errors import InstallError
from nugget.infra import git
from nugget.upkeep.install import read_text, write_text

_NAME = "prepare-commit-msg"
KEPT = f"{_NAME}.before-nugget"
_MARK = "# Nugget's prepare-commit-msg hook."


@dataclass(frozen=True, slots=True, kw_only=True)
class HookState:
    """State of a repository's hook. `scope` is that of `core.hooksPath` if it is set; `kept` is somebody else's hook.

    `is_ours` and `is_current` say whether ours is there, and starts this command.
    """

    path: Path
    scope: str | None
    is_ours: bool
    is_current: bool
    kept: Path | None


def inspect_hook(repo: Path, command: Path | None = None) -> HookState:
    """Return the state of the hook of the repository that holds `repo`. Raises GitError outside of git. Reads only."""
    asked = ("rev-parse", "--path-format=absolute", "--git-common-dir", "--show-toplevel")
    common, *top = os.fsdecode(git.run(repo, *asked)).removesuffix("\n").split("\n")
    set_by = git.run(repo, "config", "--type=path", "--show-scope", "--get-all", "core.hooksPath", check=False)
    folder, scope = Path(common) / "hooks", None
    for line in os.fsdecode(set_by).split("\n"):
        origin, _, value = line.partition("\t")
        if value and origin != "command":  # the scope in which our own git processes switch hooks off
            folder, scope = Path(top[0] if top else common, value), origin
    path, kept = folder / _NAME, folder / KEPT
    text = _content(path)
    is_ours = _MARK.encode() in text
    is_current = is_ours and (command is None or text == _script(command).encode())
    return HookState(
        path=path, scope=scope, is_ours=is_ours, is_current=is_current, kept=kept if os.path.lexists(kept) else None
    )


def install_hook(repo: Path, *, command: Path) -> HookState:
    """Put the hook in; a repository that has it, with this command, is left as it is.

    Raises GitError outside of git, InstallError if a kept hook is in the way or a file cannot be written: everything
    is then as it was.
    """
    state = inspect_hook(repo, command)
    hook, kept = state.path, state.path.with_name(KEPT)
    if state.is_current:
        return state
    is_foreign = not state.is_ours and os.path.lexists(hook)
    if is_foreign and state.kept:
        raise InstallError(
            f"{hook} is not Nugget's, and {kept} is there as well.", hint=f"Put them together, or remove {kept}."
        )
    try:
        hook.parent.mkdir(parents=True, exist_ok=True)
        if is_foreign:
            hook.rename(kept)
        write_text(hook, _script(command), expected=read_text(hook), mode=0o755)
        hook.chmod(stat.S_IMODE(hook.stat().st_mode) | 0o111)
    except (OSError, InstallError) as error:
        if is_foreign and kept.exists():
            kept.replace(hook)
        if isinstance(error, InstallError):
            raise
        raise InstallError(f"{hook} cannot be written: {error.strerror or error}.") from error
    return inspect_hook(repo, command)


def uninstall_hook(repo: Path) -> HookState | None:
    """Remove our hook and put the kept one back in its place; return None if ours was not there.

    Raises GitError outside of git, InstallError if a file cannot be changed, or somebody put a hook in the place of
    ours while we keep theirs.
    """
    state = inspect_hook(repo)
    if not state.is_ours and state.kept is None:
        return None
    if not state.is_ours and os.path.lexists(state.path):
        raise InstallError(f"{state.path} is not Nugget's any more; {state.kept} is the hook that was there before.")
    try:
        if state.kept:
            state.kept.replace(state.path)
        else:
            state.path.unlink()
    except OSError as error:
        raise InstallError(f"{state.path} cannot be removed: {error.strerror or error}.") from error
    return state


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


def _content(path: Path) -> bytes:
    """Return the content of a hook, empty if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
