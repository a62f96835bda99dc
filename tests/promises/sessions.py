"""Promises about reading sessions, redaction and offline extraction."""

from __future__ import annotations

PROMISES: dict[str, str] = {
    "SES-READ-ALL": "every transcript at hand parses, or is refused in one clear sentence, never with a traceback",
    "SES-TORN": "torn, undecodable and shapeless lines are counted and stop nothing",
    "SES-HUMAN": "what the client, hooks and other agents injected is never taken for the person's words",
    "SES-QUEUED": "a prompt typed while the agent works is read, once",
    "SES-REWIND": "what the person went back on is left out",
    "SES-COMMANDS": "commands carry exit code and output, edits what was there before and after",
    "SES-SUBAGENTS": "a subagent's events are read where its task was started, and told apart",
    "SES-COMPACTION": "a compaction summary is no prompt, and the session goes on behind it",
    "SES-TITLE": "summaries of other sessions do not name this one",
    "CON-LIMIT": "a condensed session never exceeds its limit, and keeps the task and the outcome",
    "CON-RECALL": "what Nugget recalled in a session is not captured again",
    "RED-CORPUS": "of fake secrets of 300 kinds at least 95 % are redacted, with a precision of 97 %",
    "RED-OFFLINE": "redaction asks nobody whether a secret is valid: it opens no socket",
    "RED-SILENT": "redaction reports what kind it found and never what",
    "RED-NEVER-FAILS": "redaction reads any text in one pass; what a rule fails on is taken out and counted",
    "RED-PRIVATE": "what stands in <private> is never read",
    "RED-ALLOW": "what redaction.allow names stays",
    "RED-EXCLUDE": "the content of excluded paths is left out of a session, and excluded projects are known",
    "RED-KEPT": "no password of a session reaches a proposal, the archive, provenance, an index or a log",
    "RED-SCRUB": "doctor --secrets finds a leaked secret in stores and history; scrub takes it out of all stores",
    "RED-REAL": "real sessions keep their hashes, ids, images and lock files",
    "EXT-JUNK": "plans, status reports, small talk and requests for the moment become no units",
    "EXT-CAUSE": "a root cause that was found becomes a bug with its reason",
    "EXT-CONSTRAINT": "a rule of the person becomes a belief with its reason, in six languages",
    "EXT-DECISION": "choices, corrections and answers of the person become decisions with what was not chosen",
    "EXT-REFUTED": "what a session reverted, refused or took back becomes no unit",
    "EXT-VERBATIM": "every unit carries quotes that stand verbatim in the records it names",
    "EXT-EXPLAIN": "`nugget capture-session --explain` shows each claim with what judged it and what kept it out",
    "CAP-SUPERSEDES": "a later choice that rejects an earlier one on the same subject is proposed as its successor",
    "CAP-ANOTHER": "another decision is another unit: nothing is appended to an accepted one",
    "EXT-REAL": "offline extraction works on every real session, with and without the model",
}
GAPS: dict[str, str] = {}
