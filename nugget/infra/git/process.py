"""The one place that starts git, through GitPython, so that no repository can run a program or open a connection.

A cloned or unpacked folder is data: its configuration names programs under some thirty keys (git-config(1)), its
attributes choose among them, and its `.git` folder brings hooks. Each git process therefore gets the settings of
`HARDENED`, an environment without inherited GIT_ variables, no protocol to fetch with, and, if it reads or writes
files of a work tree, an empty value for each named program that the configuration holds. The user's own ssh and
credential helpers come back in for the brain's remotes (`remotes`), their signing for Nugget's commits (`writing`).
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from pathlib import Path

from nugget.config import read_environment
from nugget.errors import GitError
from nugget.infra import system

Setting = tuple[str, str]
"""A key of git's configuration and its value."""

PATIENCE_S = 4.0
"""The time to wait for a lock that another git process holds."""
HARDENED: tuple[Setting, ...] = (
    ("core.alternateRefsCommand", "true"),
    ("core.fsmonitor", "false"),
    ("core.hooksPath", os.devnull),
    ("core.sshCommand", "ssh"),
    ("core.virtualFilesystem", ""),
    ("credential.helper", ""),
    ("gc.auto", "0"),
    ("gpg.openpgp.program", "gpg"),
    ("gpg.program", "gpg"),
    ("gpg.ssh.defaultKeyCommand", ""),
    ("gpg.ssh.program", "ssh-keygen"),
    ("gpg.x509.program", "gpgsm"),
    ("log.showSignature", "false"),
    ("maintenance.auto", "false"),
    ("protocol.ext.allow", "never"),
    ("safe.bareRepository", "explicit"),
    ("submodule.recurse", "false"),
)
_VARIABLES = {
    "GCM_INTERACTIVE": "never",
    "GIT_ALLOW_PROTOCOL": "",  # no version of git may fetch even a missing object
    "GIT_ASKPASS": "",  # an empty value also disables core.askPass and SSH_ASKPASS
    "GIT_EDITOR": ":",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_PROXY_COMMAND": "",  # git uses the first value that it finds, so a setting could not override core.gitProxy
    "GIT_SEQUENCE_EDITOR": ":",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
    "SSH_ASKPASS": "",
}
_KEPT_VARIABLES = frozenset(
    "GIT_EXEC_PATH GIT_CONFIG_NOSYSTEM GIT_CONFIG_SYSTEM GIT_CONFIG_GLOBAL GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL"
    " GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL".split()
)
_NAMED_PROGRAMS = r"^(filter\..*\.(clean|smudge|process|required)|merge\..*\.driver|hook\..*\.(command|event))$"
"""Keys that name a program below a name of the repository's choice, so that each has to be looked up."""
_NEUTRAL = {"required": "false", "driver": "false", "event": ""}
"""Values for such keys, empty by default; a merge driver that fails leaves a conflict."""
_WITHOUT_WORK_TREE = frozenset(
    "cat-file check-ref-format commit-tree config diff-tree fast-import for-each-ref init log ls-remote ls-tree"
    " merge-base merge-file mktree read-tree remote rev-list rev-parse symbolic-ref update-ref var worktree"
    " write-tree".split()
)
"""Commands that neither read nor write files of a work tree, and so run none of the named programs."""
_OLDEST = (2, 31)
_OPTIONS = {
    "diff": ("--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty"),
    "log": ("--no-ext-diff", "--no-textconv"),
    "status": ("--ignore-submodules=dirty",),  # a submodule has its own configuration
}


def environment(settings: Iterable[Setting] = ()) -> dict[str, str]:
    """Return the variables of a git process: ours without GIT_DIR and the like, no prompts, and these settings.

    Settings go in variables because any user of the machine can see arguments (git-config(1), GIT_CONFIG_COUNT).
    """
    ours = read_environment().variables.items()
    kept = {name: value for name, value in ours if not name.startswith("GIT_") or name in _KEPT_VARIABLES}
    every = (*HARDENED, *settings)
    named = {f"GIT_CONFIG_{part}_{number}": setting[index] for number, setting in enumerate(every)
             for index, part in enumerate(("KEY", "VALUE"))}  # fmt: skip
    return kept | _VARIABLES | {"GIT_CONFIG_COUNT": str(len(every))} | named


def run(
    repo: Path, *args: str, stdin: bytes | None = None, check: bool = True,
    variables: Mapping[str, str] | None = None, settings: Sequence[Setting] = (), timeout_s: float = 120.0,
) -> bytes:  # fmt: skip
    """Return the standard output of `git <args>` in `repo`.

    `variables` and `settings` go on top of the hardened ones. Raises GitError if git is missing, does not end in time,
    or (with `check`) fails.
    """
    done = start(repo, args, stdin=stdin, variables=variables, settings=settings, timeout_s=timeout_s)
    if not check or done.returncode == 0:
        return done.stdout
    if taken := re.search(rb"'([^'\n]+\.lock)': File exists", done.stderr):
        raise locked(repo, repo / os.fsdecode(taken[1]))
    lines = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    marked = [line for line in lines if line.startswith(("fatal:", "error:"))]
    reason = (marked or lines or [f"exit code {done.returncode}"])[0].removeprefix("fatal: ").removeprefix("error: ")
    if b"not a git repository" in done.stderr:
        raise GitError(f"{repo} is not in a git repository.")
    trust = "The folder belongs to another user; `git config --global --add safe.directory <folder>` trusts it."
    raise GitError(f"git {args[0]} failed in {repo}: {reason}", hint=trust if b"dubious own" in done.stderr else None)


def start(
    repo: Path, args: Sequence[str], *, stdin: bytes | None = None, variables: Mapping[str, str] | None = None,
    settings: Sequence[Setting] = (), timeout_s: float = 120.0,
) -> subprocess.CompletedProcess[bytes]:  # fmt: skip
    """Return the ended process of `git <args>`, whatever its exit code. Raises GitError if it could not run."""
    verb, *rest = args
    more = {**(_place(repo) if verb not in ("init", "clone") else {}), **(variables or {})}
    neutral: list[Setting] = []
    if verb not in _WITHOUT_WORK_TREE:
        lookup = ("config", "-z", "--name-only", "--get-regexp", _NAMED_PROGRAMS)
        named = _execute(repo, lookup, environment() | more, None, timeout_s)
        if named.returncode > 1:  # 1: no such key; above: the configuration cannot be read
            return named
        keys = {os.fsdecode(key) for key in named.stdout.split(b"\0") if key}
        neutral = [(key, _NEUTRAL.get(key.rpartition(".")[2], "")) for key in sorted(keys)]
    whole = environment((*settings, *neutral)) | more
    return _execute(repo, (verb, *_OPTIONS.get(verb, ()), *rest), whole, stdin, timeout_s)


def user_settings(repo: Path, pattern: str) -> list[Setting]:
    """Return the system's and the user's settings whose keys match, without those of the repository itself.

    Sections that the user's file includes for this repository (includeIf) count as the user's.
    """
    listed = start(repo, ("config", "-z", "--show-scope", "--get-regexp", pattern)).stdout
    tokens = [os.fsdecode(token) for token in listed.split(b"\0")]
    entries = zip(tokens[0::2], tokens[1::2], strict=False)
    own = [entry.partition("\n") for scope, entry in entries if scope in ("system", "global")]
    return [(key, value if separator else "true") for key, separator, value in own]


def locked(repo: Path, lock: Path) -> GitError:
    """Return the error for a lock file that another git process holds, with the time it was made."""
    since = ""
    with suppress(OSError):
        since = f", which has been there since {datetime.fromtimestamp(lock.stat().st_mtime, UTC):%Y-%m-%d %H:%M} UTC"
    hint = "Another git process is at work there; if none is left, delete that file."
    return GitError(f"git holds {repo} locked by {lock}{since}.", hint=hint)


def _place(repo: Path) -> dict[str, str]:
    """Return the variables that name the work tree, which core.worktree could otherwise put elsewhere.

    A bare repository that is not inside a checkout is named itself: safe.bareRepository refuses all others.
    """
    whole = repo.absolute()
    for folder in map(str, (whole, *whole.parents)):
        entry = os.path.join(folder, ".git")  # noqa: PTH118 - of every git process
        for file in (f"{entry}/HEAD", f"{entry}/config"):
            if os.path.exists(file) and not os.path.isfile(file):  # noqa: PTH110, PTH113
                raise GitError(f"{file} is not a regular file.", hint="Delete it; restore it from a clone or backup.")
        if os.path.isfile(entry) or os.path.lexists(os.path.join(entry, "HEAD")):  # noqa: PTH113, PTH118
            return {"GIT_WORK_TREE": folder}
    return {"GIT_DIR": str(whole)} if (whole / "HEAD").is_file() and (whole / "objects").is_dir() else {}


@cache
def _refuse_old() -> None:
    """Raise GitError for a git that ignores settings in variables, so that a repository could run programs."""
    import git

    version = git.Git(os.sep).version_info
    if version < _OLDEST:
        found, wanted = (".".join(map(str, numbers)) for numbers in (version, _OLDEST))
        raise GitError(f"git {found} is too old: Nugget needs {wanted} or newer.", hint="Install a newer git.")


def _execute(
    repo: Path, args: Sequence[str], variables: Mapping[str, str], stdin: bytes | None, timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    missing = GitError("git is not installed, or not on the PATH.", hint="Install git and run this again.")
    try:
        import git
    except ImportError as error:  # GitPython looks for git when it is imported
        raise missing from error
    # GitPython passes every variable on; env(1), which Windows lacks, removes the unwanted ones.
    foreign = [name for name in read_environment().variables if name.startswith("GIT_") and name not in variables]
    without = ["env", *chain.from_iterable(("-u", name) for name in foreign)] if foreign and system.IS_POSIX else []
    # `-C`, not GitPython's folder: it expands `$` in that, and ignores a folder that it cannot enter. The root is the
    # working folder, since this process's own may be gone or closed to us.
    command = [*without, "git", "-C", str(repo.absolute()), "--no-pager", "--literal-pathspecs", *args]
    try:
        _refuse_old()
        process = git.Git(os.sep).execute(
            command, istream=subprocess.PIPE, as_process=True, env=variables, shell=False, start_new_session=True
        )
    except git.exc.GitCommandNotFound as error:
        raise missing from error
    except (OSError, ValueError) as error:
        raise GitError(f"git {args[0]} could not be started in {repo} ({error}).") from error
    try:
        printed, complaint = process.communicate(stdin, timeout=timeout_s)
    except BaseException as error:
        with suppress(OSError):  # with its children; on SIGTERM git removes its lock files
            system.end_group(process, gently=True)
        if isinstance(error, subprocess.TimeoutExpired):
            raise GitError(f"git {args[0]} did not end within {timeout_s:g} s in {repo}.") from error
        raise
    return subprocess.CompletedProcess(command, process.returncode, printed, complaint)
