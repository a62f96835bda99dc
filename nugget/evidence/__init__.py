"""Evidence: what happened in sessions and shells, what failed, what fixed it, and where somebody was.

`ingest` takes logs in, `evidence_bundle` answers a question about a session, `bundle_json` is its JSON.
"""

from __future__ import annotations

from nugget.evidence.across import put_evidence_units, session_counts, workspace_bundle
from nugget.evidence.bundle import bundle_json, evidence_bundle
from nugget.evidence.candidates import detect_intent, is_diagnostic
from nugget.evidence.derive import all_logs, derive_sessions, find_log, ingest, ingest_all
from nugget.evidence.selection import LlmSelection, SelectorOptions, select_with_llm
from nugget.evidence.values import (
    INTENTS,
    BundleOptions,
    EvidenceBundle,
    Incident,
    Ingested,
    SelectedEvidence,
    WorkingNote,
)

__all__ = [
    "INTENTS", "BundleOptions", "EvidenceBundle", "Incident", "Ingested", "LlmSelection", "SelectedEvidence",
    "SelectorOptions", "WorkingNote", "all_logs", "bundle_json", "derive_sessions", "detect_intent",
    "evidence_bundle", "find_log", "ingest", "ingest_all", "is_diagnostic", "put_evidence_units", "select_with_llm",
    "session_counts", "workspace_bundle",
]  # fmt: skip
