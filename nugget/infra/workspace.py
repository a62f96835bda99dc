"""Identify the code repository of a folder; worktrees, clones and renamed folders share one identity.

The identity comes from the first of these that exists: the address of the remote, the first commit, the git folder
(without commits), or the path of the folder (without git). Addresses are compared
without scheme, user, port, `.git` and case, so that a clone over ssh and one over https are the same workspace.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from nugget.errors import GitError
from nugget.infra import git
from nugget.infra.http_client import parts_of
from nugget.models import EventKind, Session
from nugget.text import content_hash

_ACCOUNT_ALIAS = r"\A((?:github|gitlab)\.com|bitbucket\.org)-.+"
"""`git@github.com-work:...`, which people use in their ssh configuration to keep two accounts apart."""
_SIDE_FOLDER = r"(.+?)/(?:\.claude/worktrees|\.worktrees)/[^/]+(?=/|\Z)"
"""The folders of worktrees that agents put inside the repository itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A code repository as seen from one of its checkouts.

    `identity` can be a file name. `root` is the folder that stored paths are relative to: the checkout's top, for a
    bare repository the repository. `common_dir` is the git folder that all worktrees share, None without git.
    """

    identity: str
    root: Path
    name: str
    common_dir: Path | None = None


def find_workspace(folder: Path, *, is_known: Callable[[str], bool] | None = None) -> Workspace:
    """Return the workspace of a folder, or for a deleted one the repository it was in, if that still exists.

    A folder without git is a workspace of its own, unless `is_known` accepts the identity of one of its parents,
    where a session was started.
    """
    folder = folder.absolute()
    if not os.path.isdir(folder):
        if side := re.match(_SIDE_FOLDER, folder.as_posix()):
            return replace(find_workspace(Path(side[1])), root=folder)
        left = next(filter(os.path.isdir, folder.parents), Path(folder.anchor))
        found = _repository(left) if left != Path(left.anchor) else None
        return found or _folder_workspace(folder)
    if (found := _repository(folder)) is not None:
        return found
    parents = map(_folder_workspace, folder.parents) if is_known else ()
    own = _folder_workspace(folder)
    return next((one for one in (own, *parents) if is_known and is_known(one.identity)), own)


@dataclass(slots=True)
class WorkspaceFinder:
    """Find the workspaces of folders, asking git once for each repository.

    `known` maps folders of workspaces to identities, for folders that are gone.
    """

    known: Mapping[str, str]
    found: dict[Path, Workspace] = field(default_factory=dict)

    def of_folder(self, folder: str) -> Workspace:
        """Return the workspace of a folder, even if the folder is gone."""
        top = (_top(Path(folder)) if os.path.isdir(folder) else None) or Path(folder)
        if top not in self.found:
            place = find_workspace(top)
            known = next((one for one in (top, *top.parents) if str(one) in self.known), None)
            if known and place.common_dir is None and not os.path.isdir(top):
                place = replace(place, identity=self.known[str(known)], root=known, name=known.name)
            self.found[top] = place
        return self.found[top]

    def of_session(self, session: Session) -> dict[str, list[Workspace]]:
        """Return the workspaces that a session worked in, with their checkouts; the one of its own folder comes first.

        Files that it edited in another repository count too.
        """
        edited = (Path(event.path or "").parent for event in session.events
                  if event.kind is EventKind.FILE_EDIT and event.ok is not False)  # fmt: skip
        tops = (_top(folder) for folder in dict.fromkeys(edited) if folder.is_absolute())
        grouped: dict[str, list[Workspace]] = {}
        for folder in dict.fromkeys(filter(None, (session.cwd, *session.folders, *map(str, filter(None, tops))))):
            checkouts = grouped.setdefault((place := self.of_folder(folder)).identity, [])
            if all(place.root != one.root for one in checkouts):
                checkouts.append(place)
        return grouped


def _top(folder: Path) -> Path | None:
    """Return the nearest folder upwards that holds a `.git`."""
    try:
        return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), None)
    except OSError:
        return None


def relative_path(workspace: Workspace, path: str, *, folder: str | None = None) -> str | None:
    """Return a path as an agent named it, relative to the workspace with `/`; None for the root and for paths outside.

    A relative path starts at `folder`, else at the root. The prefix of a worktree inside the repository
    (`.claude/worktrees/<name>/`) is removed.
    """
    if not path or "\0" in path:
        return None
    root = os.path.normpath(workspace.root)
    named = Path.home() / path[2:] if path.startswith("~/") else Path(folder or root, path)
    whole = Path(os.path.normpath(named))
    inside = _below(str(whole), root)
    if inside is None and (real := Path(os.path.realpath(whole.parent))) != whole.parent:
        inside = _below(str(real / whole.name), os.path.realpath(root))
    if not inside:
        return None
    inside = re.sub(r"\A(?:\.claude/worktrees|\.worktrees|worktrees)/[^/]+/", "", inside)
    return None if inside == ".git" or inside.startswith(".git/") else inside


def normalised_remote(url: str) -> str | None:
    """Return `host/path` of a remote's address in lower case; None for a path on this machine.

    `git@GitHub.com:acme/shop.git`, `ssh://git@github.com:22/acme/shop` and `https://token@github.com/Acme/shop/` are
    all `github.com/acme/shop`.
    """
    host, path = host_and_path(url)
    host = host.rstrip(".").removeprefix("altssh.").removeprefix("ssh.").removeprefix("www.")
    host = re.sub(_ACCOUNT_ALIAS, r"\1", host)
    path = re.sub(r"/+", "/", path).strip("/").lower().removesuffix(".git").rstrip("/")
    if host == "dev.azure.com":  # ssh: v3/<organisation>/<project>/<repository>, https: with `_git` in it
        path = path.removeprefix("v3/").replace("/_git/", "/")
    return f"{host}/{path}" if host and path else None


def host_and_path(url: str) -> tuple[str, str]:
    """Return the host and the path of a remote's address, also of `user@host:path`; no host on this machine."""
    url = url.strip()
    if "://" not in url:  # one letter before the colon is a Windows drive
        found = re.fullmatch(r"(?:[^/@:]*@)?(\[[^\]]*\]|[^/:@]{2,}):/*(.+)", url)
        return (found[1].lower().strip("[]"), found[2].partition("?")[0]) if found else ("", "")
    parts = parts_of(url)
    return (parts.hostname or "", parts.path) if parts.scheme != "file" else ("", "")


def _repository(folder: Path) -> Workspace | None:
    """Return the repository that `folder` is in, None if it is in none or git cannot tell."""
    command = ("rev-parse", "--path-format=absolute", "--is-bare-repository", "--git-common-dir", "--show-toplevel")
    try:
        lines = os.fsdecode(git.run(folder, *command, check=False)).removesuffix("\n").split("\n")
        if len(lines) < 2 or lines[0] not in ("true", "false"):
            return None
        remote = remote_address(folder)
        roots = () if remote else ("rev-list", "--max-parents=0", "HEAD")
        first = git.run(folder, *roots, check=False).decode().split() if roots else []
    except GitError:
        return None
    common = Path(lines[1])
    main = common.parent if common.name == ".git" else common
    root = Path(lines[2]) if len(lines) > 2 else main
    if remote is not None:
        name = PurePosixPath(remote).name
        return Workspace(identity=_identity(remote, remote), root=root, name=name, common_dir=common)
    name = (main.name or "root").removesuffix(".git")
    key = f"commit:{first[-1]}" if first else f"git:{common.as_posix()}"
    # The hash alone distinguishes two; a folder's name would change when the folder is renamed.
    identity = _identity("repository" if first else name, key)
    return Workspace(identity=identity, root=root, name=name, common_dir=common)


def remote_address(folder: Path) -> str | None:
    """Return the normalised address of `origin`, else `upstream`, else the first, rewritten by git's settings."""
    lines = git.run(folder, "remote", "-v", check=False).decode("utf-8", "replace").splitlines()
    addresses: dict[str, str] = {}
    for line in lines:
        name, _, rest = line.partition("\t")
        url, _, direction = rest.rpartition(" (")
        if direction.startswith("fetch") and (address := normalised_remote(re.sub(r" \[[^\]]*\]$", "", url))):
            addresses[name] = address
    return addresses.get("origin") or addresses.get("upstream") or next(iter(addresses.values()), None)


def _folder_workspace(folder: Path) -> Workspace:
    real = Path(os.path.realpath(folder))
    return Workspace(identity=_identity(real.name, f"path:{real.as_posix()}"), root=folder, name=real.name or "root")


def _identity(readable: str, key: str) -> str:
    """Return a readable slug with a hash: `github.com-acme-shop-1a2b3c4d`."""
    plain = unicodedata.normalize("NFKD", readable).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9._]+", "-", plain).strip("-.")[:60].strip("-.") or "workspace"
    return f"{slug}-{content_hash(os.fsencode(key))[:8]}"


def _below(path: str, root: str) -> str | None:
    prefix = root if root.endswith(os.sep) else root + os.sep
    return path[len(prefix) :].replace(os.sep, "/") if path.startswith(prefix) else None
