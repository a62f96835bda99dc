"""Commands that write knowledge by hand: add, forget, mv, lint, import."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from nugget.cli import BrainOption, DryRunOption, JsonOption, listed, open_brain, progress, sessions, show
from nugget.config import current_folder, expanded
from nugget.errors import UsageError
from nugget.models import KnowledgeType, Severity
from nugget.render.json import fields, import_json
from nugget.render.terminal import put_report

commands = typer.Typer(add_completion=False)

UnitArgument = Annotated[str, Argument(metavar="ID", help="The unit, such as pattern/retry-once.")]


@commands.command()
def add(
    text: Annotated[list[str], Argument(metavar="TEXT|-", help="The text to keep; - reads standard input.")],
    kind: Annotated[
        KnowledgeType, Option("--type", metavar="TYPE", help=f"One of: {', '.join(KnowledgeType)}.")
    ] = KnowledgeType.PATTERN,
    domain: Annotated[str, Option("--domain", help="Domain to file it under, such as coding/go.")] = "general",
    tags: Annotated[list[str] | None, Option("--tag", metavar="T,..", help="Tags of the unit.")] = None,
    title: Annotated[str | None, Option("--title", help="Title; by default the first heading or sentence.")] = None,
    confidence: Annotated[float, Option("--confidence", min=0, max=1, help="How sure you are, from 0 to 1.")] = 0.8,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Add a piece of knowledge.

    It becomes a new file in one commit. Text on standard input that starts with frontmatter must be a complete
    knowledge file.
    """
    given = _stdin() if text == ["-"] else " ".join(text)
    hint = " (`nugget config set redaction.allow` allows more)"
    with open_brain(brain) as opened:
        unit, path = opened.add(
            given, type=kind, domain=domain, tags=listed(tags), title=title, confidence=confidence,
            report=lambda counts: put_report("rest", left_out=(), redacted=counts, hint=hint, branch=None),
        )  # fmt: skip
    show({"id": unit, "path": path} if as_json else None, f"Kept as {unit} in {path}.")


def _stdin() -> str:
    """Read stdin as UTF-8 in any locale. Raises UsageError for other bytes."""
    content = sys.stdin.buffer.read()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        hint = "`iconv -t UTF-8` converts it."
        raise UsageError(f"Standard input is not UTF-8 text (line {line}).", hint=hint) from None


@commands.command()
def forget(unit_id: UnitArgument, as_json: JsonOption = False, brain: BrainOption = None) -> None:
    """Remove a unit and keep it from being proposed again.

    Its file and the relations to it are removed. The text stays in git's history (`git filter-repo` rewrites that) and
    in the archived sessions that it came from ($NUGGET_HOME/archive).
    """
    with open_brain(brain) as opened:
        result, golden = opened.forget(unit_id)
        archive = opened.environment.home / "archive"
    value = fields(result, "relinked", "commit", id="old_id", path="old_path") | {"golden": _questions(golden)}
    show(value if as_json else None, report="forgotten", result=result, golden=golden, archive=archive)


@commands.command("mv")
def move(
    unit_id: UnitArgument,
    domain: Annotated[str | None, Option("--domain", help="Domain to file it under.")] = None,
    name: Annotated[str | None, Option("--name", help="Rename it to <type>/NAME.")] = None,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Move a unit to another domain, or rename it.

    Relations to it are updated.
    """
    if domain is None and name is None:
        raise UsageError("Give --domain, --name, or both.")
    with open_brain(brain) as opened:
        result, golden = opened.move(unit_id, domain=domain, name=name)
    value = fields(result, "old_id", "new_id", "old_path", "new_path", "relinked", "commit")
    show(value | {"golden": _questions(golden)} if as_json else None, report="moved", result=result, golden=golden)


def _questions(golden: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"path": path, "line": line} for path, line in golden]


@commands.command("log")
def show_log(
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Maximum number of changes.")] = 20,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """List what was accepted, added, moved and forgotten in this clone of the brain, newest first."""
    with open_brain(brain) as opened:
        found = opened.changes(limit=limit)
    values = [fields(one, "kind", "title", "time", "before", "commit", "undone_by") for one in found]
    show({"changes": values} if as_json else None, report="log", found=found)


@commands.command()
def undo(as_json: JsonOption = False, brain: BrainOption = None) -> None:
    """Undo the last change that `nugget log` lists, by a new commit; what was accepted waits for review again."""
    with open_brain(brain) as opened:
        last = opened.undo()
    told = f"Undone: {last.title}.{' It waits for review again.' if last.kind == 'accepted' else ''}"
    show(fields(last, "kind", "title", "commit") if as_json else None, told)


@commands.command()
def lint(
    paths: Annotated[list[Path] | None, Argument(metavar="PATH..", help="Only these files.")] = None,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Check knowledge files.

    For use in CI: the exit code is 1 if a file has an error.
    """
    here = current_folder()
    with open_brain(brain) as opened:
        problems = opened.lint([here / expanded(path) for path in paths or ()])
    errors = sum(problem.severity is Severity.ERROR for problem in problems)
    warnings = len(problems) - errors
    value = {"errors": errors, "warnings": warnings, "problems": [asdict(found) for found in problems]}
    show(value if as_json else None, report="lint", problems=problems, errors=errors, warnings=warnings)
    raise typer.Exit(1 if errors else 0)


@commands.command("import")
def import_notes(
    path: Annotated[Path, Argument(metavar="FOLDER|FILE", help="Markdown notes, ADRs, rules, or an export.")],
    domain: Annotated[
        str | None,
        Option("--domain", help="Domain for all of it, such as coding/go; by default derived from the folders."),
    ] = None,
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Maximum units to propose at once.")] = 100,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Propose knowledge from existing notes.

    Reads Obsidian vaults, markdown folders, ADRs, CLAUDE.md and AGENTS.md, Cursor rules, and exports of mem0,
    claude-mem and basic-memory. The proposed units are committed on a branch of the brain for review; your notes are
    not changed. The conversations.json (or the zip) of a ChatGPT or Claude export becomes sessions.
    """
    with open_brain(brain) as opened:
        chats = sessions.import_chats(opened, path, dry_run=dry_run)
        if chats is not None:
            named = [{"id": name, "title": title or None} for name, title in chats.items()]
            show({"sessions": named} if as_json else None, report="chats", chats=chats, dry_run=dry_run)
            return
        with progress():
            result = opened.import_notes(path, domain=domain, limit=limit, dry_run=dry_run)
    value = import_json(result) | {"published": [asdict(entry) for entry in result.published.publications]}
    show(value if as_json else None, report="import", result=result, dry_run=dry_run, published=result.published)
