"""`nugget promote`: a nugget becomes a proposal for the brain."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from nugget.cli.terminal import BrainOption, JsonOption, console, current_folder, open_brain, print_json
from nugget.models import KnowledgeType
from nugget.render import one_line


def promote_nugget(
    nugget: Annotated[str, typer.Argument(metavar="ID", help="A nugget's id, or the beginning of it.")],
    type: Annotated[
        str | None,
        typer.Option("--type", metavar="T", help=f"Become this type: {', '.join(KnowledgeType)}."),
    ] = None,
    domain: Annotated[str, typer.Option("--domain", metavar="D", help="File it under this domain.")] = "coding",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be proposed; write nothing.")] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Propose a nugget as a knowledge unit of the brain.

    It waits on a branch, as what capture finds does; `nugget review` shows, accepts or rejects it.
    """
    from nugget.app.neighbours import similar_units
    from nugget.capture.promotion import Promotion, promote
    from nugget.provenance import stale_reasons
    from nugget.provenance.asking import find_here, find_nugget, opened_index
    from nugget.provenance.checkout import Checkout

    with open_brain(brain) as opened:
        home, now = opened.environment.home, datetime.now(UTC)
        with opened_index(home) as connection:
            workspace = find_here(connection, current_folder())
            found = find_nugget(connection, nugget, workspace=workspace.identity)
            stale = None
            if found.scope.repo == workspace.identity:
                reasons = stale_reasons([found], connection=connection, checkout=Checkout(workspace), today=now.date())
                stale = reasons.get(found.id)
        bound = Promotion(
            brain=opened.path, home=home, settings=opened.settings, similar=similar_units(opened), now=now,
            type=type.lower() if type else None, domain=domain, dry_run=dry_run,
        )  # fmt: skip
        result = promote(found, bound, stale=stale)
    if as_json:
        changes = [{"path": one.path, "id": one.unit.id, "reason": one.reason} for one in result.changes]
        print_json({"nugget": result.nugget, "branch": result.branch, "changes": changes})
        return
    out = console()
    for one in result.changes:
        verb = "would be proposed" if dry_run else "is proposed"
        out.print(f"{one_line(found.id)} {verb} as {one_line(one.unit.id)} ({one_line(one.path)}).")
    if result.branch:
        out.print(f"It waits on {result.branch}; `nugget review show` shows it.")
