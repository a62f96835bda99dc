"""`nugget init`, `sync`, `rebuild`, `status`, `doctor` and `serve`: setting up and looking after."""

from __future__ import annotations

import getpass
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nugget.cli.installing import offer_install
from nugget.cli.keeping import problem_json
from nugget.cli.terminal import (
    BrainOption,
    JsonOption,
    brain_folder,
    console,
    current_folder,
    note,
    open_brain,
    print_json,
)
from nugget.config import expanded, load_settings, read_environment
from nugget.errors import BrainError, UsageError
from nugget.infra.brain_in_use import brain_around, default_brain, is_brain, trust
from nugget.models import Severity
from nugget.render import clean, one_line
from nugget.text import counted, printable
from nugget.upkeep.user_settings import set_default_brain

if TYPE_CHECKING:
    from rich.console import Console

    from nugget.config import Environment
    from nugget.upkeep.doctor import Finding
    from nugget.upkeep.status import Status


def init(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[PATH]", help="The folder; else this one when it is empty or a brain, else ~/brain."),
    ] = None,
    remote: Annotated[str | None, typer.Option("--remote", metavar="URL", help="Where the brain is pushed to.")] = None,
    install: Annotated[bool, typer.Option("--install/--no-install", help="Offer to connect Claude Code.")] = True,
    brain: BrainOption = None,
) -> None:
    """Make a brain and use it by default.

    A brain is a git repository of markdown files. Safe to run again: what is there stays.
    """
    from nugget.brain import init_brain

    environment = read_environment()
    before = default_brain(environment)  # a config.yaml that cannot be read is told before anything is made
    folder = expanded(path or brain or environment.brain or _usual_folder(environment))
    if (shown := printable(str(folder))) != str(folder):
        raise UsageError(f"A brain cannot be in a folder with such a name: {shown}.", hint="Name another folder.")
    result = init_brain(folder, owner=_owner(), now=datetime.now(UTC))
    if remote:
        _set_remote(result.path, remote)
    try:
        set_default_brain(environment, result.path)
    except OSError as error:
        told = f"{result.path} is made, but not the default brain: {environment.home}/config.yaml cannot be written"
        raise BrainError(
            f"{told} ({(error.strerror or str(error)).lower()}).", hint=f"`--brain {result.path}` uses it all the same."
        ) from error
    try:
        trust(environment, result.path, keep_index=result.created or before == result.path)
    except UsageError as error:
        note(f"{error} It is used as the default brain all the same.")
    out = console()
    made = "Made the brain" if result.created else "The brain is there already:"
    out.print(f"{made} {clean(str(result.path))}")
    out.print("It is the default brain now; `--brain` and NUGGET_BRAIN choose another.", style="dim")
    if result.problem:
        note(f"Without git: {result.problem}")
    is_connected = install and offer_install(environment)
    out.print("\nNext:")
    steps = [
        ('nugget add "What you learned, in a sentence or more"', "keep something by hand"),
        ("nugget capture-session --transcript FILE", "learn from a Claude Code session"),
        ('nugget ask "how do we ..."', "ask"),
    ]
    if install and not is_connected:
        steps.append(("nugget install", "let Claude Code ask and be captured by itself"))
    for command, purpose in steps:
        out.print(f"   {command:<56}{purpose}")


def status(as_json: JsonOption = False, brain: BrainOption = None) -> None:
    """Show what is indexed, captured, queued, failed and spent."""
    from nugget.upkeep.status import status as status_of

    environment = read_environment()
    folder = brain_folder(brain, environment)
    seen = status_of(folder, load_settings(environment, folder), environment)
    if as_json:
        print_json(_status_json(seen))
    else:
        _print_status(console(), seen)


def doctor(
    mend: Annotated[bool, typer.Option("--repair", help="Put right what can be; say what was done.")] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Look for what is wrong and name the next command.

    Changes nothing, unless with --repair: that removes stale locks, leftovers and damaged indexes, and makes these
    again. The exit code is 1 when something is wrong.
    """
    from nugget.upkeep.doctor import doctor as diagnose
    from nugget.upkeep.status import State

    environment = read_environment()
    folder = brain_folder(brain, environment)
    repaired = _repair(folder, environment.home, brain) if mend else []
    found = diagnose(folder, load_settings(environment, folder), environment, now=datetime.now(UTC))
    wrong = sum(finding.state is State.ERROR for finding in found)
    if as_json:
        findings = [_finding_json(finding) for finding in found]
        print_json({
            "ok": not wrong, "brain": str(folder), "findings": findings, **({"repaired": repaired} if mend else {}),
        })  # fmt: skip
    else:
        for line in repaired:
            console().print(one_line(line))
        _print_findings(console(), folder, found, wrong)
    raise typer.Exit(1 if wrong else 0)


def _repair(folder: Path, home: Path, brain: Path | None) -> list[str]:
    from nugget.index.home import home_index_file
    from nugget.upkeep.repair import repair

    had_home_index = home_index_file(home).exists()
    told = repair(folder, home)
    with open_brain(brain) as opened:
        opened.sync()
        if had_home_index and not home_index_file(home).exists():
            opened.sync_machine()
    return told or ["There was nothing to repair."]


def serve(
    address: Annotated[
        str | None,
        typer.Argument(metavar="[HOST:PORT]", help="With --http: where to listen; 127.0.0.1:5033 unless said."),
    ] = None,
    http: Annotated[bool, typer.Option("--http", help="Answer over HTTP: MCP, search, ask and shell logs.")] = False,
    compat: Annotated[
        str | None,
        typer.Option("--compat", metavar="NAME", help="Over MCP, also offer the tools of: openqed."),
    ] = None,
    identity: Annotated[
        str | None, typer.Option("--as", metavar="IDENTITY", help="Whose memory agents may ask for; else nobody's.")
    ] = None,
    no_token: Annotated[
        bool,
        typer.Option(
            "--no-token",
            help="With --http on this machine: answer without a token, to every program and user of the machine.",
        ),
    ] = False,
    brain: BrainOption = None,
) -> None:
    """Answer coding agents over MCP on stdin and stdout, or everybody over HTTP.

    Over HTTP only this machine can ask, unless you give another address. Every request needs the token of
    NUGGET_HTTP_TOKEN, or the one that the server makes at its first start.
    """
    if compat not in (None, "openqed"):
        raise UsageError(f"There is no --compat {compat!r}.", hint="The one there is: openqed.")
    if identity is not None:
        from nugget.sources.memory import check_identity

        check_identity(identity)
    if http:
        from nugget.http import serve as answer_requests

        answer_requests(
            address, brain=expanded(brain) if brain else None, openqed=compat == "openqed", identity=identity,
            with_token=not no_token,
        )  # fmt: skip
        return
    if address or no_token:
        given = address or "--no-token"
        raise UsageError(f"{given!r} is only used with --http.", hint=f"nugget serve --http {given}")
    from nugget.mcp.server import serve as answer_agents

    answer_agents(expanded(brain) if brain else None, openqed=compat == "openqed", identity=identity)


def _usual_folder(environment: Environment) -> Path:
    """Return the folder to make a brain in. Raises UsageError if the current one is a brain that is not trusted."""
    here = current_folder()
    if is_brain(here):
        brain_around(environment, here)
        return here
    return Path("~/brain") if any(here.iterdir()) else here


def _owner() -> str:
    """Return the owner's name: as git knows the person, else the login name."""
    from nugget.errors import GitError
    from nugget.infra import git

    try:
        named = git.run(current_folder(), "config", "--get", "user.name", check=False).decode("utf-8", "replace")
    except GitError:
        named = ""
    if named.strip():
        return named.strip()
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _set_remote(brain: Path, url: str) -> None:
    from nugget.infra import git

    known = git.run(brain, "remote", check=False).decode().split()
    git.run(brain, "remote", "set-url" if "origin" in known else "add", "origin", "--", url)


def _print_status(out: Console, seen: Status) -> None:
    from rich.text import Text

    from nugget.upkeep.status import when

    index, capture, repository = seen.index, seen.capture, seen.repository
    sizes = ((index.units, "unit"), (index.chunks, "chunk"), (index.vectors, "vector"), (index.relations, "relation"))
    size = ", ".join(counted(count, noun) for count, noun in sizes)
    stands = {
        "ready": f"{size}; in line with the files",
        "behind": f"{size}; {counted(index.behind, 'file')} changed since. Next: nugget sync",
        "absent": "none yet; the first question makes it. Next: nugget sync",
        "unusable": f"{index.reason}. Next: nugget rebuild",
    }
    queue = ", ".join(f"{count} {state}" for state, count in capture.queue.items() if count) or "empty"
    errors = sum(problem.severity is Severity.ERROR for problem in index.problems)
    waiting = counted(seen.proposals, "proposal")
    rows = [
        ("Brain", f"{seen.brain}{' (default)' if seen.is_default else ''}"),
        ("Git", _git_words(seen)),
        ("Index", stands[index.state]),
        ("Files", _files_words(index.files, errors, is_read=index.state != "absent")),
        ("Model", _model_words(seen)),
        ("LLM key", "set" if seen.has_key else "not set: passages instead of answers"),
        ("Review", f"{waiting}. Next: nugget review" if seen.proposals else "nothing waits"),
        ("Captured", f"last {when(capture.last_captured)}" if capture.last_captured else "nothing yet"),
        ("Queue", queue + (", a worker is at work" if capture.working else "")),
        ("Spent", f"${capture.usd:.2f} in {counted(capture.calls, 'LLM call')}"),
    ]
    if seen.publishing.remote:
        rows.insert(7, ("Published", _publishing_words(seen)))
    if repository is None:
        rows[1] = ("Git", f"no repository. Next: nugget init {seen.brain}")
    for name, said in rows:
        out.print(Text.assemble((f"{name:<10}", "bold"), one_line(said)))
    for failure in capture.failures:
        out.print(Text(f"          failed: {one_line(failure)}", style="red"))
    if capture.failures:
        out.print("          Next: nugget capture --retry")
    for failure in seen.publishing.failures:
        out.print(Text(f"          not published: {one_line(failure)}", style="red"))
    if seen.publishing.failures:
        out.print("          Next: nugget capture --publish")


def _files_words(files: int, errors: int, *, is_read: bool) -> str:
    left_out = f"{errors} left out{'. Next: nugget lint' * bool(errors)}" if is_read else "not read yet"
    return f"{counted(files, 'knowledge file')}, {left_out}"


def _publishing_words(seen: Status) -> str:
    state = seen.publishing
    parts = [
        counted(len(state.open), "open pull request"),
        f"{state.local} only local" if state.local else "",
        f"{state.merged} merged on the remote. Next: nugget sync --pull" if state.merged else "",
    ]
    return ", ".join(filter(None, parts))


def _git_words(seen: Status) -> str:
    repository = seen.repository
    if repository is None:
        return ""
    if repository.problem:
        return repository.problem
    parts = [repository.branch or "detached HEAD", (repository.head or "no commit yet")[:10]]
    if repository.uncommitted:
        parts.append(counted(repository.uncommitted, "uncommitted file"))
    if repository.operation:
        parts.append(f"in the middle of a {repository.operation}")
    return ", ".join(parts)


def _print_findings(out: Console, brain: Path, found: list[Finding], wrong: int) -> None:
    from rich.text import Text

    marks = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "red")}
    out.print(f"{clean(str(brain))}\n", style="bold")
    for finding in found:
        mark = marks[finding.state]
        out.print(Text.assemble(mark, f" {finding.name:<16}", one_line(finding.said)))
        if finding.next_step:
            out.print(Text(f"                  Next: {one_line(finding.next_step)}", style="dim"))
    open_checks = sum(finding.state == "warning" for finding in found)
    if wrong:
        out.print("\nSomething is wrong.", style="bold red")
    elif open_checks:
        out.print(f"\nIt works; {counted(open_checks, 'warning')} above.", style="bold yellow")
    else:
        out.print("\nNothing is wrong.", style="bold green")


def _finding_json(finding: Finding) -> dict[str, object]:
    return {
        "name": finding.name, "state": str(finding.state), "said": finding.said, "next_step": finding.next_step,
    }  # fmt: skip


def _model_words(seen: Status) -> str:
    """The model of the index; where another one is configured and cannot be had, why."""
    if problem := seen.index.model_problem:
        kept = f"the index keeps vectors of {seen.index.model}" if seen.index.model else "words alone are searched"
        return f"{seen.configured_model} cannot be had ({problem.rstrip('.')}); {kept}. Next: nugget sync"
    return ", ".join(filter(None, [seen.index.model or seen.configured_model, seen.index.vector_search]))


def _status_json(seen: Status) -> dict[str, object]:
    value = asdict(seen) | {"brain": str(seen.brain)}
    value["index"]["problems"] = [problem_json(problem) for problem in seen.index.problems]
    return value
