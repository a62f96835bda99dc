"""Promises about everything that talks to an LLM."""

from __future__ import annotations

PROMISES: dict[str, str] = {
    "LLM-OFF": "without a key, or with `llm.enabled: false`, no LLM is ever called",
    "LLM-LAZY": "the anthropic SDK is imported by the first call, not before",
    "LLM-REDACT": "secrets and <private> blocks are taken out before anything is sent",
    "LLM-KEY": "the API key stands in no message and in no ledger line, even when the server repeats it",
    "LLM-REDIRECT": "the API key follows no redirect",
    "LLM-REPLY-REDACT": "a secret in a model's reply is taken out before anything is made of the reply",
    "LLM-LEDGER": "every call, also a refused or failed one, is in the cost ledger with tokens, cost and outcome",
    "LLM-CAP": "a call that could cost more than its cap is refused before it is made",
    "LLM-UNPRICED": "a model without a known price has no cost in the ledger and counts as the dearest one",
    "LLM-DEADLINE": "no call outlasts its timeout: not by retries, not by retry-after, not by a trickling reply",
    "LLM-RETRY": "overload and rate limits are retried as the server asks",
    "LLM-SENTENCE": "every failure of the API, the network or the reply is LLMUnavailable with one clear sentence",
    "LLM-SCHEMA": "a structured reply is checked against its schema, and what is wrong with it is told",
    "LLM-STREAM": "a streamed answer comes as it is written, and a cut one is told from a complete one",
    "LLM-TERMINAL": "a streamed answer carries no control characters to the terminal",
    "LLM-COMMAND": "the `claude` command is used only when asked for, without tools, hooks, memory or a saved session",
    "LLM-COMMAND-GUARD": "a `claude` that Nugget started is never captured and starts no other",
    "RERANK-BOUNDS": "a re-ranker's reply can only judge what it was shown; anything else in it is without effect",
    "RERANK-FENCE": "question and passages reach the re-ranker fenced as material, and cannot leave their fence",
    "RERANK-FALLBACK": "when the re-ranker fails, the local order stands and the answer says why",
    "RERANK-LOCAL": "a cross-encoder re-ranks offline from a local folder, and a missing one is told in one sentence",
    "ANSWER-CITES": "an answer cites units by id, and only ids that it was given count as citations",
    "ANSWER-FENCE": "units reach the model fenced as reference material whose instructions are not followed",
    "ANSWER-UNKNOWN": "with nothing found the answer says so, without a call",
    "GEN-EVIDENCE": "no unit is proposed without a quote that stands word for word in the session it was shown",
    "GEN-HOSTILE": "paths, YAML, hidden text, a thousand units or a foreign script in a reply reach no file",
    "GEN-REPAIR": "a malformed reply is asked for once more; then sound units stay, the rest is dropped with reasons",
    "GEN-CAP": "an extraction stays within the money and the windows it may use, also over retries",
    "GEN-WINDOWS": "a long session is read in windows that are merged without writing any unit anew",
    "GEN-RELATIONS": "existing units that are near are shown, and only they can be related to or updated",
    "GEN-FAILURE": "when the LLM fails, extraction fails as a whole, so that the session can be captured later",
    "GEN-INJECTION": "the session reaches the model fenced as material",
}
GAPS: dict[str, str] = {}
