"""The write side of provenance: workspaces, the store, file touches, extraction, travel."""

PROMISES: dict[str, str] = {
    "PROVENANCE-WORKSPACE": "Worktrees, clones over any protocol and renamed folders are one workspace.",
    "PROVENANCE-STORE": "One append-only JSONL file a session, atomic, with ids that stay when it is extracted again.",
    "PROVENANCE-REDACTED": "No secret gets into the store of provenance, whatever field it stands in.",
    "PROVENANCE-CORRUPT": "Torn, hostile and foreign lines are reported and skipped; the rest is read.",
    "PROVENANCE-TOUCHES": "Files that a session touched are known with hashes of contents, by tools, git and disk.",
    "PROVENANCE-INTENTS": "Intents of the session (.6) and of files (.5, .7), cleaned, at most 120 characters.",
    "PROVENANCE-REASONS": "Constraints, decisions, rejections, workarounds, caveats, at the file and symbol they name.",
    "PROVENANCE-LANGUAGES": "Prompts in other languages than English give nuggets too.",
    "PROVENANCE-DEPENDENCIES": "Edits of manifests become dependencies, with the nearest reason.",
    "PROVENANCE-GENERATIVE": "An LLM finds nuggets with checked quotes, within the cap; heuristics stand in.",
    "PROVENANCE-TUNING": "A later edit by hand of what an agent wrote is seen by hash and becomes tuning (.65).",
    "PROVENANCE-ONCE": "A session is extracted once, again when it has grown, and its nuggets keep their ids.",
    "PROVENANCE-EXTRACT": "nugget extract takes the workspace's sessions and says extracted, skipped, failed.",
    "PROVENANCE-AUTOMATIC": "A captured session leaves its provenance where that is on, and never fails for it.",
    "PROVENANCE-TRAVEL": "Nuggets are exported and imported; nothing comes in twice, and nothing hostile.",
    "PROVENANCE-REAL": "Every real transcript is extracted; a replayed one that was changed by hand is tuned.",
    "PROVENANCE-BAD-INPUT": "A repository that is gone or bare, and paths outside, get an answer and stop nothing.",
}
GAPS: dict[str, str] = {}
