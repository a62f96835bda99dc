"""The prepare-commit-msg hook in a code repository: put in beside a hook that is there, and taken out without a trace.

A hook of somebody else's is kept beside ours under another name and run first, with its arguments and under its own
name as `$0`; if it fails, the commit fails as it did before. Only our own file is ever written or removed.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from dataclasses import dataclass
from pathlib import Path

from nugget.errors import InstallError
from nugget.infra import git
from nugget.upkeep.client_settings import read_text, write_text

NAME = "prepare-commit-msg"
KEPT = f"{NAME}.before-nugget"
_MARK = "# Nugget's prepare-commit-msg hook."
_SHELL = re.compile(
    rb"#!\s*((?:/\S*/)?(?:env\s+)?(?:sh|bash|dash|zsh|ksh)|/\S*/(?:sh|bash|dash|zsh|ksh))((?:\s+-\w+)*)\s*$"
)
_MAX_SHELL_BYTES = 64 * 1024
"""A kept shell script is handed over as an argument, which systems limit to 128 KB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookState:
    """State of a repository's hook: ours, somebody else's that is kept beside it, the folder and its scope."""

    folder: Path
    scope: str | None
    is_ours: bool
    is_current: bool
    keeps_other: bool

    @property
    def path(self) -> Path:
        """Return the path where git looks for the hook."""
        return self.folder / NAME


def inspect_hook(repo: Path, command: Path | None = None) -> HookState:
    """Return the state of the hook of the repository that holds `repo`. Raises GitError outside of git. Reads only."""
    folder, scope = _hooks_folder(repo)
    text, kept = _read(folder / NAME), folder / KEPT
    is_ours = text is not None and _MARK.encode() in text
    wanted = script(command, kept).encode() if command else text
    is_current = is_ours and text == wanted
    return HookState(folder=folder, scope=scope, is_ours=is_ours, is_current=is_current, keeps_other=_exists(kept))


def _hooks_folder(repo: Path) -> tuple[Path, str | None]:
    """Return the folder of a checkout's hooks, and the scope (`local`, `global`...) of `core.hooksPath` if it is set.

    Raises GitError outside of git.
    """
    asked = ("rev-parse", "--path-format=absolute", "--git-common-dir", "--show-toplevel")
    common, *top = os.fsdecode(git.run(repo, *asked)).removesuffix("\n").split("\n")
    told = git.run(repo, "config", "--type=path", "--show-scope", "--get-all", "core.hooksPath", check=False)
    set_by = [line.split("\t", 1) for line in os.fsdecode(told).split("\n") if "\t" in line]
    # Our own git processes switch hooks off by this very setting, in the scope `command`.
    named = [(scope, value) for scope, value in set_by if scope != "command" and value]
    if not named:
        return Path(common) / "hooks", None
    scope, value = named[-1]
    return Path(top[0] if top else common, value), scope


def install_hook(repo: Path, *, command: Path) -> HookState:
    """Put the hook in; a repository that has it, with this command, is left as it is.

    Raises GitError outside of git, InstallError where a kept hook is in the way or a file cannot be written: everything
    is then as it was.
    """
    state = inspect_hook(repo, command)
    hook, kept = state.path, state.folder / KEPT
    if state.is_current:
        return state
    is_foreign = not state.is_ours and _exists(hook)
    if is_foreign and state.keeps_other:
        hint = f"Put them together, or remove {kept}."
        raise InstallError(f"{hook} is not Nugget's, and {kept} is there as well.", hint=hint)
    moved = False
    try:
        hook.parent.mkdir(parents=True, exist_ok=True)
        if is_foreign:
            hook.rename(kept)
            moved = True
        write_text(hook, script(command, kept), expected=read_text(hook), mode=0o755)
        hook.chmod(stat.S_IMODE(hook.stat().st_mode) | 0o111)
    except (OSError, InstallError) as error:
        if moved:
            kept.replace(hook)
        if isinstance(error, InstallError):
            raise
        raise InstallError(f"{hook} cannot be written: {error.strerror or error}.") from error
    return inspect_hook(repo, command)


def uninstall_hook(repo: Path) -> HookState | None:
    """Remove our hook and put the kept one back in its place; return None if ours was not there.

    Raises GitError outside of git, InstallError where a file cannot be changed, or somebody put a hook in the place of
    ours while we keep theirs.
    """
    state = inspect_hook(repo)
    hook, kept = state.path, state.folder / KEPT
    if not state.is_ours:
        if state.keeps_other and _exists(hook):
            raise InstallError(f"{hook} is not Nugget's any more; {kept} is the hook that was there before.")
        if not state.keeps_other:
            return None
    try:
        if state.keeps_other:
            kept.replace(hook)
        else:
            hook.unlink()
    except OSError as error:
        raise InstallError(f"{hook} cannot be removed: {error.strerror or error}.") from error
    return state


def script(command: Path, kept: Path) -> str:
    """Return the hook: the kept one first, if there is one, then Nugget, which never stops a commit."""
    return f"""#!/bin/sh
{_MARK} `nugget uninstall git-hook` takes it out again.
kept="${{0%/*}}/{KEPT}"
if [ -x "$kept" ]; then
    {_run_kept(kept)} || exit $?
fi
nugget={shlex.quote(str(command))}
[ -x "$nugget" ] || nugget=nugget
"$nugget" commit --hook "$@" </dev/null >/dev/null 2>&1
exit 0
"""


def _run_kept(kept: Path) -> str:
    """Return the line that runs a kept hook. A shell hook finds its own name in `$0`, which some use."""
    content = _read(kept if _exists(kept) else kept.with_name(NAME)) or b""
    found = _SHELL.match(content.split(b"\n", 1)[0])
    if found is None or _MARK.encode() in content or len(content) > _MAX_SHELL_BYTES:
        return '"$kept" "$@"'
    words = [*found[1].decode("ascii", "replace").split(), *found[2].decode("ascii", "replace").split()]
    return f'{shlex.join(words)} -c "$(cat "$kept")" "$0" "$@"'


def _exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
