"""Commands that connect Claude Code and git, and change settings: install, uninstall, config."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer
from typer import Argument, Option

from nugget import cli
from nugget import config as settings_of
from nugget.cli import BrainOption, DryRunOption, JsonOption, library, open_brain, progress, show, worker, writing
from nugget.cli import install as installing
from nugget.config import Environment, current_folder, documented_keys, read_environment, read_user_file
from nugget.errors import BrainError, NuggetError, UsageError
from nugget.render.terminal import console, note, put
from nugget.text import clean, counted, one_line
from nugget.upkeep import set_values
from nugget.upkeep.client_settings import FileChange, SettingsScope, apply, diff

commands = typer.Typer(add_completion=False)

Place = Literal["claude-code", "codex", "cursor", "gemini", "opencode", "vscode", "git-hook"]
PlaceArgument = Annotated[
    Place,
    Argument(metavar="AGENT", help=f"{', '.join(get_args(Place)[:-1])}; or git-hook, the hook of the current folder's "
                                   "repository that proposes commit messages."),
]  # fmt: skip
ScopeOption = Annotated[SettingsScope, Option("--scope", help="Your settings, or those of the project in this folder.")]


@commands.command()
def install(
    place: PlaceArgument = "claude-code",
    scope: ScopeOption = "user",
    brief: Annotated[
        bool | None, Option("--brief/--no-brief", help="Start each session with what is known about its folder.")
    ] = None,
    recall: Annotated[
        bool | None, Option("--recall/--no-recall", help="Add the few units that are likely to help to each prompt.")
    ] = None,
    notes: Annotated[
        bool | None,
        Option("--notes/--no-notes", help="Note a session at each turn and compaction, in case it never ends."),
    ] = None,
    every: Annotated[bool, Option("--all", help="Connect every agent found on this machine.")] = False,
    remember: Annotated[
        bool | None, Option("--remember/--no-remember", help="Let agents propose knowledge while they work.")
    ] = None,
    dry_run: DryRunOption = False,
) -> None:
    """Connect a coding agent, so that it asks the brain and its sessions are captured.

    Claude Code gets a hook at the start and the end of a session, the MCP server and the permission to use it. Other
    agents get the server and a paragraph in their rules, and `nugget watch` captures their sessions. Other settings
    stay as they are, and it is safe to run again. A session starts with a brief of at most 150 tokens once the brain
    holds reviewed knowledge of its repository; --brief makes it longer, --no-brief switches it off. With git-hook: git
    proposes commit messages.
    """
    environment = read_environment()
    command = installing.own_command(environment)
    if place == "git-hook":
        for line in installing.install_hook(current_folder(), command=command, dry_run=dry_run):
            put(line)
        return
    if remember is not None and not dry_run:
        set_values(environment, {"capture.notes": "true" if remember else "false"})
        put(f"New sessions {'have' if remember else 'do not have'} the tool `propose_knowledge`.")
    failed = 0
    if every or place != "claude-code":
        failed = _install_clients(None if every else place, environment, command, dry_run=dry_run)
        if not (every and environment.claude_config.is_dir()):
            raise typer.Exit(failed)
    changes = installing.plan_install(
        scope, environment, command=command, cwd=current_folder(), brief=brief, recall=recall, notes=notes
    )
    if not dry_run:
        prepare()
    if _carry_out(changes, dry_run=dry_run):
        undo = f"nugget uninstall{' --scope project' * (scope == 'project')}"
        put(f"New sessions are captured when they end, and can ask the brain. `{undo}` undoes this.")
        if brief is None:
            put("A session starts with a short brief once there is reviewed knowledge of its repository; "
                "`nugget install --no-brief` switches that off.")  # fmt: skip
        if scope == "project":
            put(f"These files start {command}, a path on this machine: think before you commit them. Claude Code "
                "asks once whether the server of a project may start: say yes.")  # fmt: skip
    elif not changes:
        put("Claude Code is connected already; nothing to change.")
    if not dry_run:
        _ask_for_claude(environment)
    raise typer.Exit(failed)


@commands.command()
def uninstall(
    place: PlaceArgument = "claude-code",
    scope: ScopeOption = "user",
    every: Annotated[bool, Option("--all", help="Remove it from every agent's settings, and from your login.")] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Remove Nugget from a coding agent's settings.

    Only Nugget's entries are removed; the rest keeps its order and indent. The brain stays. With git-hook: remove the
    hook from the repository in the current folder.
    """
    if place == "git-hook":
        for line in installing.uninstall_hook(current_folder(), dry_run=dry_run):
            put(line)
        return
    environment = read_environment()
    known, failed = installing.clients(environment, Path("nugget")), 0
    for client in (None, *known.values()) if every else (known.get(place),):
        try:
            changes = installing.plan_client(client, remove=True) if client else (
                installing.plan_uninstall(scope, environment, cwd=current_folder()))  # fmt: skip
            if not _carry_out(changes, dry_run=dry_run) and not changes and not every:
                put(f"Nugget is not in the settings of {client.title if client else 'Claude Code'}; nothing to change.")
        except NuggetError as error:  # the other agents' settings may still be fine
            failed = cli.report_error(error)
    if every and (service := worker.service_file(environment)).exists():
        for line in (f"Would remove {service}",) if dry_run else worker.set_up(environment, service, remove=True):
            put(line)
    if not (dry_run or failed):
        put(f"What was captured stays in {environment.home} and in your brain until you delete it.")
    raise typer.Exit(failed)


def prepare(brain: Path | None = None) -> None:
    """Compile the redaction rules, load the model and index the brain, so that no session waits for them."""
    writing.secret_lines("")
    with suppress(NuggetError), open_brain(brain) as opened, progress():
        opened.sync()
        if opened.embedder_problem:
            note(f"There is no search by meaning yet: {opened.embedder_problem}")


def _install_clients(place: Place | None, environment: Environment, command: Path, *, dry_run: bool) -> int:
    """Connect one agent, or each whose folder is on this machine; return the exit code."""
    known, failed = installing.clients(environment, command), 0
    chosen = [known[place]] if place else [client for client in known.values() if client.folder.is_dir()]
    if not dry_run:
        prepare()
    for client in chosen:
        try:
            changes = installing.plan_client(client)
            if _carry_out(changes, dry_run=dry_run) or not changes:
                put(f"{client.title} is connected{'' if changes else ' already'}.")
        except NuggetError as error:
            failed = cli.report_error(error)
    if chosen and not (dry_run or failed):
        put("`nugget watch --install` captures the sessions of agents other than Claude Code.")
    if not chosen and not environment.claude_config.is_dir():
        put("No agent was found on this machine. Name one to connect it anyway: `nugget install codex`.")
    return failed


def _ask_for_claude(environment: Environment) -> None:
    """Ask once at the terminal whether the `claude` command may find knowledge; store the answer."""
    is_asked = "extraction.use_claude" in read_user_file(environment)
    is_there = shutil.which("claude", path=environment.variables.get("PATH")) is not None
    if is_asked or not is_there or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    put("Rules find knowledge in your sessions, offline. The `claude` command finds much more, and proposes less that "
        "is not worth keeping. It sends the redacted session where it already went, on your account.")  # fmt: skip
    answer = typer.confirm("May Nugget use it (recommended)?", default=True)
    set_values(environment, {"extraction.use_claude": "true" if answer else "false"})
    put(f"`nugget config set extraction.use_claude {'false' if answer else 'true'}` changes that.")


def offer_install(environment: Environment) -> bool:
    """Ask at the terminal whether to install now; return whether Nugget is installed."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    command = installing.own_command(environment)
    changes = installing.plan_install("user", environment, command=command, cwd=current_folder())
    if changes and typer.confirm("Connect Claude Code now (two hooks, the MCP server, one permission)?"):
        _carry_out(changes, dry_run=False)
        _ask_for_claude(environment)
        return True
    return not changes


def _carry_out(changes: Sequence[FileChange], *, dry_run: bool) -> bool:
    """Write the changes, or show them; return whether anything was written."""
    if dry_run:
        console().print(clean(diff(changes)), end="\n" if changes else "")
        return False
    apply(changes)
    for change in changes:
        verb = "Removed" if change.after is None else "Made" if change.before is None else "Changed"
        put(f"{verb} {change.path}")
    return bool(changes)


@commands.command()
def watch(
    install: Annotated[bool, Option("--install", help="Start it at every login (systemd or launchd).")] = False,
    uninstall: Annotated[bool, Option("--uninstall", help="Stop starting it at login.")] = False,
) -> None:
    """Capture the sessions of all agents as they end, until Ctrl-C.

    Checks every two minutes for sessions that have been idle for ten; needed for agents without hooks.
    """
    environment = read_environment()
    if install or uninstall:
        for line in worker.set_up(environment, installing.own_command(environment), remove=uninstall):
            put(line)
        return
    put("Waiting for sessions to end; Ctrl-C stops this. For earlier ones: nugget capture --catch-up")
    worker.watch(environment, report=lambda job: put(f"{job.session}: {job.state}"))


config = typer.Typer(help="Show your settings, or change them.", invoke_without_command=True)
commands.add_typer(config, name="config")


@config.callback()
def show_settings(ctx: typer.Context, as_json: JsonOption = False, brain: BrainOption = None) -> None:
    """Show your settings, or change them. Without a subcommand: list each setting, its value and its origin."""
    if ctx.invoked_subcommand is not None:
        return
    environment = read_environment()
    try:
        folder: Path | None = library.brain_in_use(brain, environment)
    except BrainError:
        if brain:
            raise
        folder = None
    settings, mine = settings_of.load_settings(environment, folder), read_user_file(environment)
    shared = settings_of.read_brain_file(folder)[0] if folder else {}
    rows = []
    for key in documented_keys():
        variable = settings_of.variable_of(key)
        origins = [
            (variable, environment.variables.get(variable)),
            ("config.yaml", key in mine and mine[key][0] is not None),
            ("brain.yaml", key in shared),
        ]
        origin = next((name for name, is_set in origins if is_set), "default")
        rows.append((key, getattr(settings, key.replace(".", "_", 1)), origin))
    values = {key: {"value": value, "from": origin} for key, value, origin in rows}
    show(values if as_json else None, report="settings", rows=rows)


@config.command("set")
def set_setting(
    key: Annotated[str, Argument(metavar="KEY", help="For example retrieval.limit.")],
    values: Annotated[
        list[str] | None,
        Argument(metavar="VALUE..", help="The value, or the entries of a list; without one the default is restored."),
    ] = None,
) -> None:
    """Set one of your settings, or reset it to its default.

    It is written to config.yaml in $NUGGET_HOME, for all your brains.
    """
    environment = read_environment()
    is_list = key in documented_keys() and isinstance(documented_keys()[key][0], tuple)
    if len(values or ()) > 1 and not is_list:
        hint = "Put a value with spaces in quotes."
        raise UsageError(f"`{key}` takes one value, not {len(values or ())}.", hint=hint)
    set_values(environment, {key: values if is_list and values else next(iter(values or ()), None)})
    done = "is set" if values else "is no longer set"
    put(f"{key} {done} in {one_line(str(environment.home / 'config.yaml'))}.")


@config.command("move")
def move_settings(
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False, brain: BrainOption = None
) -> None:
    """Move settings that brain.yaml may not set into your own configuration.

    Shows each value and asks first, because such settings decide where texts and keys are sent. Your own values stay.
    """
    environment = read_environment()
    mine, folder = read_user_file(environment), library.brain_in_use(brain, environment)
    found = {key: entry for key, entry in settings_of.read_brain_file(folder)[2].items() if key not in mine}
    if not found:
        put("There is nothing to move.")
        return
    for key, (value, line) in found.items():
        put(f"{key}: {one_line(str(value))}   (brain.yaml:{line})")
    put("These decide where your texts and keys are sent and what runs. Move only what you chose yourself.")
    if not yes and not sys.stdin.isatty():
        raise UsageError("This needs a terminal to ask for confirmation.", hint="`--yes` moves them without asking.")
    if yes or typer.confirm(f"Use these, in {environment.home / 'config.yaml'}?"):
        set_values(environment, {key: value for key, (value, _) in found.items()})
        put(f"Moved {counted(len(found), 'setting')}. Now delete what moved from brain.yaml.")
