"""History: what was said in sessions, written in channels and typed into shells, searchable without a copy of it.

`sync_history` reads what is new into the machine's index, `ask_history` finds passages, `read_passage` shows what
stands around one.
"""

from nugget.history.searching import HistoryAnswer, ask_history, newest_history, search_history
from nugget.history.showing import is_history_ref, read_passage
from nugget.history.syncing import HistoryResult, sync_history
from nugget.history.values import HISTORY_SOURCES, PassageHit, Role, ShownPassage, Stretch

__all__ = [
    "HISTORY_SOURCES",
    "HistoryAnswer",
    "HistoryResult",
    "PassageHit",
    "Role",
    "ShownPassage",
    "Stretch",
    "ask_history",
    "is_history_ref",
    "newest_history",
    "read_passage",
    "search_history",
    "sync_history",
]
