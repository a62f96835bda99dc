"""History: what was said in sessions, written in channels and typed into shells, searched and shown."""

from nugget.history.searching import newest_history, search_history
from nugget.history.showing import is_history_ref, read_passage
from nugget.history.values import HISTORY_SOURCES, PassageHit, Role, ShownPassage, Stretch

__all__ = [
    "HISTORY_SOURCES",
    "PassageHit",
    "Role",
    "ShownPassage",
    "Stretch",
    "is_history_ref",
    "newest_history",
    "read_passage",
    "search_history",
]
