"""Stale nuggets: still returned, flagged with the reason, penalised.

In this order, the first that holds:

- `file_changed`: the file's SHA-256 is not the one that the session left, or the file is gone. A nugget without a
  recorded hash (of a folder, of the whole workspace, of a file that the session deleted) is not judged by it.
- `superseded`: a later session has a nugget of the same path, symbol and type. What one session says several times of
  a file stands side by side, and nuggets of the whole workspace do not supersede each other: that two sessions each
  had an intent, or named a constraint, says nothing about the older one.
- `expired`: the day after which it was to be doubted has passed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import date

from nugget.index import provenance as stored
from nugget.index.provenance import BriefNugget
from nugget.models import StaleReason
from nugget.provenance.checkout import Checkout


def stale_reason(
    nugget: BriefNugget,
    *,
    connection: sqlite3.Connection,
    checkout: Checkout,
    present_path: str,
    names: Sequence[str],
    today: date,
) -> StaleReason | None:
    """Return the reason why a nugget is stale, None if it is not.

    `present_path` is where its file is now, `names` are all paths that the file has had.
    """
    if nugget.file_hash and nugget.path:
        present = checkout.file(present_path)
        if not present.exists or (present.hash is not None and present.hash != nugget.file_hash):
            return StaleReason.FILE_CHANGED
    if nugget.path and stored.has_newer(connection, checkout.workspace.identity, nugget, names):
        return StaleReason.SUPERSEDED
    if nugget.stale_after is not None and nugget.stale_after < today:
        return StaleReason.EXPIRED
    return None
