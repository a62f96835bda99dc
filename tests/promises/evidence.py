"""Promises about what happened in sessions and shells: logs, incidents, working notes, bundles."""

PROMISES: dict[str, str] = {
    "EVID-SELECT": "On the command line a model chooses evidence from the whole history, and a missing key is said.",
    "EVI-SHELL-INCREMENTAL": "a shell log that changed is read again in place of what was read of it, also a cut one",
    "EVI-SHELL-TORN": "torn last lines wait for their end; malformed lines are counted and stop nothing",
    "EVI-SHELL-TERMINAL": "of escape codes, progress bars and binary output only what a person could read is kept",
    "EVI-SHELL-BOUNDED": "of large output beginning, end and what looks like failures are kept, in little memory",
    "EVI-SHELL-PATHS": "no session id and no link leads out of the log folder; pipes are not read",
    "EVI-WALKTHROUGH": "the seven examples of the walkthrough give what they are said to give",
    "EVI-FAILURE-FIRST": "for a question about a failure the failing command and its error line come first",
    "EVI-RESUME": "for a question about going on, incidents and working notes both stand out",
    "EVI-CHANGED": "for a question about changes, edited files dominate over noisy output",
    "EVI-INTENT": "an intent is detected in the documented order; an override is followed exactly",
    "EVI-BUDGET": "context_text stays within characters and lines, and keeps the top evidence",
    "EVI-EXPLAIN": "explain shows counts, caps, reasons, and the row that each piece of evidence stands in",
    "EVI-INGEST": "ingesting again finds nothing; what is added later is added; two at once do each part once",
    "EVI-GOLDEN": "on real sessions the failing command and its line are in the first three for 85 % of the questions",
    "EVI-SELECT": "a model chooses evidence over all history in chunks, capped; the latest streams are always carried",
    "EVI-CLI": "`nugget logs` gives the results of the functions behind it, and tells what cannot be done",
    "EVI-ACROSS": "all sessions of a code repository are asked at once, by words and by meaning, and no others",
    "EVI-HOOK": "bash is recorded only where asked: exact, escaped, private, quick, and not what is to be left out",
    "EVI-HOOK-OTHERS": "zsh and fish, at a real terminal, are recorded in the same way",
    "EVI-NOTES": "todos and decisions are what people say; words in commands, file names and commit messages are none",
    "EVI-INCIDENTS": "a failure, its output, retries, edits and fix are one incident; a search without result is none",
    "EVI-SESSIONS": "agents' sessions give the same rows, are read again when they grew, leave out what is excluded",
    "EVI-RATE-EVENTS": "a log of nothing but short events is taken in at 40 MB/s",
    "EVI-REDACT": "no secret of the redaction corpus is stored or returned",
}
GAPS: dict[str, str] = {
    "EVI-RATE-EVENTS": "each becomes a row: 2 µs for SQLite and 1.5 for JSON alone, 40 MB/s would leave 1.9 for all; "
    "7 to 10 MB/s are reached, and twice the 40 where events hold what tools wrote (benchmarks/evidence.py)",
}
