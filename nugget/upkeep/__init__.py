"""Status: what is captured, queued, failed and spent; what is wrong, and the next command. Reads only."""

from nugget.upkeep.doctor import Finding, doctor
from nugget.upkeep.status import IndexState, State, Status, index_state, status, when

__all__ = ["Finding", "IndexState", "State", "Status", "doctor", "index_state", "status", "when"]
