"""`nugget import`: existing notes become a proposal."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nugget.cli.capturing import print_published
from nugget.cli.terminal import BrainOption, JsonOption, console, note, open_brain, print_json
from nugget.render import clean, one_line
from nugget.text import counted

if TYPE_CHECKING:
    from rich.console import Console

    from nugget.importing import ImportResult

DEFAULT_LIMIT = 100
_SHOWN_LEFT_OUT = 20


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
        print_json(_result_json(result) | {"published": [asdict(entry) for entry in result.published.publications]})
        return
    _print_result(console(), result, dry_run=dry_run)
    print_published(console(), result.published, asked=False)


def _print_result(out: Console, result: ImportResult, *, dry_run: bool) -> None:
    if result.changes:
        where = "would be proposed" if dry_run else f"on {clean(result.branch or '')}"
        out.print(f"{counted(len(result.changes), 'unit')} of {counted(result.files, 'file')} {where}:\n")
    else:
        out.print(f"Nothing new to propose in {counted(result.files, 'file')}.")
    for change in result.changes:
        (evidence,) = change.unit.evidence[:1]
        out.print(f"   {clean(change.unit.id)}  {one_line(change.unit.title)}")
        out.print(f"      {clean(evidence.session)}: {one_line(change.reason)}", style="dim")
        if change.note:
            out.print(f"      look: {one_line(change.note)}", style="yellow")
    if result.known:
        note(f"{counted(result.known, 'note')} imported before.")
    for reason in [*result.dropped, *map(str, result.left_out)][:_SHOWN_LEFT_OUT]:
        note(f"left out: {one_line(reason)}")
    more = len(result.dropped) + len(result.left_out) - _SHOWN_LEFT_OUT
    if more > 0:
        note(f"left out: {more:,} more (--json names all)")
    if result.redacted:
        kinds = ", ".join(f"{count} × {kind}" for kind, count in sorted(result.redacted.items()))
        note(f"redacted before anything was kept: {kinds}")
    if result.waiting:
        note(f"{counted(result.waiting, 'note')} more than --limit; import again once these are decided.")
    if result.branch:
        out.print(f"\nNext: nugget review show {clean(result.branch)}")


def _result_json(result: ImportResult) -> dict[str, Any]:
    return {
        "branch": result.branch,
        "files": result.files,
        "units": [
            {
                "id": change.unit.id, "path": change.path, "title": change.unit.title, "type": change.unit.type,
                "domain": change.unit.domain, "confidence": change.unit.confidence, "reason": change.reason,
                "note": change.note, "from": change.unit.evidence[0].session,
            }
            for change in result.changes
        ],
        "left_out": [{"path": entry.path, "line": entry.line, "reason": entry.reason} for entry in result.left_out],
        "dropped": list(result.dropped),
        "imported_before": result.known,
        "beyond_limit": result.waiting,
        "redacted": dict(result.redacted),
    }  # fmt: skip
