"""The units of a brain that are about code of a workspace: reviewed knowledge to stand among the nuggets."""

from __future__ import annotations

import hashlib
from datetime import date

from nugget.index import Index
from nugget.infra.workspace import Workspace, normalised_remote
from nugget.models import Filter
from nugget.provenance import Reviewed
from nugget.retrieval.staleness import stale_reasons

_TEXT_CANDIDATES = 200


def reviewed_units(index: Index, workspace: Workspace, *, text: str | None, today: date) -> list[Reviewed]:
    """The units of a brain's index that are scoped to a path or symbol of the workspace.

    A unit whose scope names no repository is about any that has the path.
    """
    rows = index.connection.execute(
        """SELECT key, scope_repo FROM units WHERE source = 'brain'
           AND (scope_path IS NOT NULL OR scope_symbol IS NOT NULL)"""
    )
    keys = [key for key, repo in rows if is_about(repo, workspace)]
    if not keys:
        return []
    matches: dict[int, float] = {}
    if text:
        matches = dict(index.search_unit_text(index.terms(text), _TEXT_CANDIDATES, Filter()))
    best = max(matches.values(), default=0.0) or 1.0
    units = index.units(keys)
    stale = stale_reasons(units, index, today=today)
    return [
        Reviewed(unit=unit, text=matches[key] / best if key in matches else None, stale_reason=stale.get(key))
        for key, unit in units.items()
    ]


def is_about(repo: str | None, workspace: Workspace) -> bool:
    """Return whether a unit's `scope.repo` means this workspace: its identity, its remote's address, or its name.

    An address may be written any way that git takes it, `acme/shop` and `shop` are enough.
    """
    if not repo:
        return True
    named = repo.strip().rstrip("/").removesuffix(".git").lower()
    if named in (workspace.identity.lower(), workspace.name.lower()):
        return True
    address = normalised_remote(repo) or named
    digest = hashlib.sha256(address.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    slug, _, own = workspace.identity.rpartition("-")
    return own == digest or ("/" in named and slug.endswith("-" + named.replace("/", "-")))
