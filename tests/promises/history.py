"""History: sessions, channels and shells, searchable."""

from __future__ import annotations

PROMISES: dict[str, str] = {
    "HIS-ROLES": "sessions are searched as what you and what the agent said",
    "HIS-TITLE": "a session is found by its title, and one without is named by its first prompt",
    "HIS-NEIGHBOURS": "a ref shows its exchange or message whole, with its neighbours; what is no ref is refused",
    "HIS-LONG": "a long reply is found by any of its parts and shown whole",
    "HIS-REDACTED": "no secret of a transcript stands in the index, is found, or is shown",
    "HIS-INCREMENTAL": "a session that grew or was rewritten is read again, and rows that stay keep their ids",
    "HIS-WHILE-WRITTEN": "a transcript that is being written can be read at any moment, and nothing is lost",
    "HIS-FORKS": "forked and resumed sessions are not repeated, and take over when the original is deleted",
    "HIS-DELETED": "hits of deleted sources disappear",
    "HIS-ARCHIVE": "a session that the client deleted is still found where Nugget archived it",
    "HIS-EXCLUDED": "sessions of excluded projects are never found",
    "HIS-OFF": "`history.enabled: false` switches history off and forgets it",
    "HIS-GOLDEN": "at least 85 % of what people noted of real sessions finds the session among the first three",
    "HIS-FILTERS": "passages are filtered by source, time and session",
    "HIS-RANK": "passages are ranked by relevance, then by recency",
    "HIS-BRIDGE": "messages between agents are found in transcripts and channel files, each once",
    "HIS-SHELL": "commands and output of shells are found and shown, without escape codes, keys and links",
    "HIS-SHOW": "`nugget sessions show` reads a whole session, folded or unfolded, also from the archive, and as JSON",
    "HIS-AGENTS": "sessions of other agents are found and shown like those of Claude Code",
    "HIS-RESUMED": "an interrupted sync loses only what was read since the last commit",
    "HIS-CONCURRENT": "one process reads history at a time, and nobody has to wait for it",
    "HIS-UNCHANGED": "a sync in which nothing changed costs a look at names, sizes and times",
    "HIS-BAD-INPUT": "broken files, links in circles and damaged archives stop nothing",
    "HIS-REAL": "real sessions are found by what was said in them, and every hit can be read",
    "HIS-INJECTED": "what client and hooks injected is not found as something that was said",
    "HIS-ANY-TEXT": "any text is a query over history",
    "HIS-REWIND": "what was said before a rewind is found; what was run there is no evidence of anything",
    "HIS-RULES": "by other rules of redaction everything is read again, and what cannot be read is redacted again",
    "HIS-UNSPACED": "Of a script without spaces any part of a word is found, also a single character.",
    "HIS-PHRASE-FAR": "a phrase is found however many newer passages hold its words",
    "HIS-EXPRESSION": "phrases, operators and prefixes hold over history as everywhere",
}
GAPS: dict[str, str] = {}
