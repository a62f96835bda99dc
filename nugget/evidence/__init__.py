"""Evidence: what happened in sessions and shells, what failed, what fixed it, and where somebody was.

`ingest` takes logs in, `evidence_bundle` answers a question about a session, `bundle_json` is its JSON.
"""

from __future__ import annotations

from nugget.evidence.bundle import BundleOptions, EvidenceBundle, bundle_json, evidence_bundle, workspace_bundle
from nugget.evidence.candidates import detect_intent, is_diagnostic
from nugget.evidence.derive import (
    IngestedSession,
    all_logs,
    derive_sessions,
    find_log,
    ingest,
    ingest_all,
    put_evidence_units,
)
from nugget.evidence.selection import LlmSelection, SelectorOptions, select_with_llm

__all__ = [
    "BundleOptions", "EvidenceBundle", "IngestedSession", "LlmSelection", "SelectorOptions", "all_logs", "bundle_json",
    "derive_sessions", "detect_intent", "evidence_bundle", "find_log", "ingest", "ingest_all", "is_diagnostic",
    "put_evidence_units", "select_with_llm", "workspace_bundle",
]  # fmt: skip
