"""The write side of provenance: workspaces, the store, file touches, extraction, travel."""

PROMISES: dict[str, str] = {
    "PROVENANCE-WORKSPACE": "Worktrees, clones over any protocol and renamed folders are one workspace.",
    "PROVENANCE-STORE": "One append-only JSONL file a session, atomic, with ids that stay when it is extracted again.",
    "PROVENANCE-REDACTED": "No secret gets into the store of provenance, whatever field it stands in.",
    "PROVENANCE-CORRUPT": "Torn, hostile and foreign lines are reported and skipped; the rest is read.",
    "PROVENANCE-TOUCHES": "Files that a session touched are known with hashes of contents, by tools, git and disk.",
    "PROVENANCE-BAD-INPUT": "A repository that is gone or bare, and paths outside, get an answer and stop nothing.",
}
GAPS: dict[str, str] = {}
