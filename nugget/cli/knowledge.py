"""Commands that write knowledge by hand: add, forget, mv, lint, import."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nugget.cli.capture import print_published
from nugget.cli.terminal import BrainOption, JsonOption, brain_folder, current_folder, listed, open_brain, print_json
from nugget.errors import UsageError
from nugget.models import KnowledgeType, Severity
from nugget.render.json import import_json, problem_json
from nugget.render.reports import print_import, print_problems
from nugget.render.terminal import console, note
from nugget.text import clean, counted

if TYPE_CHECKING:
    from rich.console import Console

commands = typer.Typer(add_completion=False)


DEFAULT_DOMAIN = "general"


_MAX_STDIN_CHARS = 5_000_000


@commands.command()
def add(
    text: Annotated[list[str], typer.Argument(metavar="TEXT|-", help="What to keep; - reads it from stdin.")],
    kind: Annotated[
        KnowledgeType, typer.Option("--type", metavar="TYPE", help=f"One of: {', '.join(KnowledgeType)}.")
    ] = KnowledgeType.PATTERN,
    domain: Annotated[str, typer.Option("--domain", help="Where it is filed, e.g. coding/go.")] = DEFAULT_DOMAIN,
    tags: Annotated[list[str] | None, typer.Option("--tag", metavar="T,..", help="Words it is filed under.")] = None,
    title: Annotated[str | None, typer.Option("--title", help="Else the first heading or sentence.")] = None,
    confidence: Annotated[float, typer.Option("--confidence", min=0, max=1, help="How sure you are.")] = 0.8,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Keep a piece of knowledge.

    It becomes one new file, committed. A text with frontmatter is a finished knowledge file and kept as it is.
    """
    from nugget.brain import load
    from nugget.brain.filing import add_unit
    from nugget.config import load_settings, read_environment
    from nugget.redaction import allow_list

    given = _stdin() if text == ["-"] else " ".join(text)
    if len(given) > _MAX_STDIN_CHARS:
        raise UsageError(f"The text is longer than {_MAX_STDIN_CHARS:,} characters.", hint="Keep it in parts.")
    folder = brain_folder(brain)
    path = add_unit(
        folder, given, type=kind, domain=domain, tags=listed(tags), title=title, confidence=confidence,
        now=datetime.now(UTC), allow=allow_list(load_settings(read_environment(), folder)), report=_note_redacted,
    )  # fmt: skip
    unit = load(folder, path).unit
    unit_id = unit.id if unit else path
    if as_json:
        print_json({"id": unit_id, "path": path})
    else:
        console().print(f"Kept as {clean(unit_id)} in {clean(path)}.")


def _stdin() -> str:
    """Read stdin as UTF-8 whatever the locale. Raises UsageError for bytes that are not text."""
    content = sys.stdin.buffer.read(4 * _MAX_STDIN_CHARS + 1)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if len(content) > 4 * _MAX_STDIN_CHARS:
            return " " * (_MAX_STDIN_CHARS + 1)
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"Standard input is not UTF-8 text (line {line}).", hint="`iconv -t UTF-8` converts it."
        ) from None


@commands.command()
def forget(
    unit_id: Annotated[str, typer.Argument(metavar="ID", help="The unit, such as pattern/retry-once.")],
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Take a unit out of the brain and keep it from coming back.

    Its file goes, with the relations to it, and it is not proposed again. Its text stays in git's history
    (`git filter-repo` rewrites that), and what it was learned from in the archive of sessions ($NUGGET_HOME/archive).
    """
    from nugget.brain.filing import forget_unit
    from nugget.brain.golden import expecting

    with open_brain(brain) as opened:
        result = forget_unit(opened.path, unit_id.removeprefix("brain:"))
        opened.refresh()
        asked_for, archive = expecting(opened.path, result.id), opened.environment.home / "archive"
    if as_json:
        print_json({
            "id": result.id, "path": result.path, "relinked": list(result.relinked), "commit": result.commit,
            "golden": [{"path": path, "line": line} for path, line in asked_for],
        })  # fmt: skip
        return
    out = console()
    out.print(f"Forgot {clean(result.id)}; it will not be proposed again.")
    _print_relinked(out, result.relinked, "Relations to it were taken out of")
    _print_golden(out, asked_for, "expects it: take it out there, or name another unit.")
    out.print(f"What it said may still be in git's history and archived sessions ({clean(str(archive))}).", style="dim")


@commands.command("mv")
def move(
    unit_id: Annotated[str, typer.Argument(metavar="ID", help="The unit, such as pattern/retry-once.")],
    domain: Annotated[str | None, typer.Option("--domain", help="File it under this domain.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Call it <type>/NAME from now on.")] = None,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """File a unit under another domain, or rename it.

    Relations to it follow.
    """
    from nugget.brain.filing import move_unit
    from nugget.brain.golden import expecting

    if domain is None and name is None:
        raise UsageError("Say where to: --domain, --name, or both.")
    folder = brain_folder(brain)
    result = move_unit(folder, unit_id.removeprefix("brain:"), domain=domain, slug=name)
    asked_for = expecting(folder, result.old_id) if result.new_id != result.old_id else []
    if as_json:
        print_json({
            "old_id": result.old_id, "new_id": result.new_id, "old_path": result.old_path,
            "new_path": result.new_path, "relinked": list(result.relinked), "commit": result.commit,
            "golden": [{"path": path, "line": line} for path, line in asked_for],
        })  # fmt: skip
        return
    out = console()
    out.print(f"{clean(result.new_id)} is in {clean(result.new_path)} now.")
    _print_relinked(out, result.relinked, "Relations to it were changed in")
    _print_golden(out, asked_for, f"expects {clean(result.old_id)}: name {clean(result.new_id)} there.")


@commands.command()
def lint(
    paths: Annotated[list[Path] | None, typer.Argument(metavar="[PATH..]", help="Only these files.")] = None,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Check knowledge files.

    Made for the brain's own CI: the exit code is 1 when a file has an error.
    """
    from nugget.brain.lint import lint as check
    from nugget.config import expanded, load_settings, read_environment

    here = current_folder()
    folder, environment = brain_folder(brain), read_environment()
    wanted = [here / expanded(path) for path in paths or ()]
    problems = check(folder, wanted, settings=load_settings(environment, folder))
    errors = sum(problem.severity is Severity.ERROR for problem in problems)
    warnings = len(problems) - errors
    if as_json:
        print_json({"errors": errors, "warnings": warnings, "problems": [problem_json(found) for found in problems]})
    else:
        out = console()
        print_problems(out, problems)
        out.print(f"{counted(errors, 'error')}, {counted(warnings, 'warning')}." if problems else "All is well.")
    raise typer.Exit(1 if errors else 0)


def _note_redacted(counts: Mapping[str, int]) -> None:
    if counts:
        kinds = ", ".join(f"{count} × {kind}" for kind, count in sorted(counts.items()))
        note(f"redacted before anything was kept: {kinds} (`nugget config set redaction.allow` lets more through)")


def _print_relinked(out: Console, relinked: Sequence[str], what: str) -> None:
    if relinked:
        out.print(f"{what} {', '.join(clean(path) for path in relinked)}.")


def _print_golden(out: Console, asked_for: Sequence[tuple[str, int]], said: str) -> None:
    """One line for each golden question that the change concerns."""
    for path, line in asked_for:
        out.print(f"{clean(path)}:{line} {said}", style="yellow")


DEFAULT_LIMIT = 100


@commands.command("import")
def import_notes(
    path: Annotated[Path, typer.Argument(metavar="FOLDER|FILE", help="Markdown notes, ADRs, rules, or an export.")],
    domain: Annotated[
        str | None, typer.Option("--domain", help="Where all of it is filed, e.g. coding/go; else by the folders.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Units proposed at once.")] = DEFAULT_LIMIT,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be proposed; write nothing.")] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Propose knowledge from existing notes.

    Obsidian vaults, markdown folders, ADRs, CLAUDE.md and AGENTS.md, Cursor rules, exports of mem0, claude-mem and
    basic-memory. The units are written on a branch of the brain, to be reviewed; the notes are not touched.
    """
    with open_brain(brain) as opened:
        result = opened.import_notes(path, domain=domain, limit=limit, dry_run=dry_run)
    if as_json:
        print_json(import_json(result) | {"published": [asdict(entry) for entry in result.published.publications]})
        return
    print_import(console(), result, dry_run=dry_run)
    print_published(console(), result.published, is_requested=False)
