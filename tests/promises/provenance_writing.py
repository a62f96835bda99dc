"""The write side of provenance: workspaces, the store, file touches, extraction, travel."""

PROMISES: dict[str, str] = {
    "PROVENANCE-WORKSPACE": "Worktrees, clones over any protocol and renamed folders are one workspace.",
    "PROVENANCE-BAD-INPUT": "A repository that is gone or bare, and paths outside, get an answer and stop nothing.",
}
GAPS: dict[str, str] = {}
