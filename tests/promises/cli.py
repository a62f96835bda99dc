"""Promises about the command line, the rendering and the state of health."""

from __future__ import annotations

PROMISES: dict[str, str] = {
    "CLI-PAGER": "on a terminal what is longer than the screen is paged; PAGER, --no-pager and NO_COLOR are honoured",
    "CLI-COMMANDS": "every command is there, says what it does, and no command is there that does nothing",
    "CLI-EXIT": "0 done, 1 expected failure, 2 wrong usage, 3 unexpected, 130 interrupted",
    "CLI-ERRORS": "a failure is one sentence with what to do next, on stderr, never a traceback",
    "CLI-CRASH": "what nobody foresaw points to a log that holds the traceback and no secret",
    "CLI-PIPE": "a reader that leaves early is no failure",
    "CLI-HOOK": "a hook call is answered without importing the command line",
    "CLI-BRAIN": "the brain in use: --brain, NUGGET_BRAIN, the current folder's, the default of nugget init",
    "CLI-JSON": "--json prints exactly one JSON document on stdout, whatever else there is to say",
    "CLI-ASK-JSON": "nugget ask --json has the shape of the contract",
    "CLI-PLAIN": "no colour and no wrapped lines where the output is no terminal",
    "CLI-HOSTILE": "nothing that a brain holds can steer a terminal",
    "CLI-EXPLAIN": "the contributions that --explain shows add up to the score",
    "CLI-UNKNOWN": "where the brain does not know, ask says so",
    "CLI-ANSWER": "with an LLM ask streams an answer and names the units that it cites",
    "CLI-DEGRADED": "what is missing from an answer is said, never silent",
    "CLI-BEHIND": "many changed files never block an answer: it is given from before, said so, and caught up behind it",
    "CLI-HAND": "what is added by hand is found at once, what is forgotten is gone at once",
    "CLI-LINT": "lint names file, line and reason, and fails on errors only",
    "CLI-INIT": "init makes a brain, makes it the default, and can be run again",
    "CLI-CAPTURE": "a transcript becomes a proposal, once, and what is accepted of it is found",
    "CLI-REVIEW": "a proposal can be listed, shown, accepted and rejected from the terminal",
    "RENDER-FENCE": "no text of a unit can leave its fence in what an agent reads",
    "RENDER-SIZE": "what an agent reads is never longer than it was told to be",
    "HEALTH-READS": "status and doctor write nothing",
    "HEALTH-NEXT": "what is wrong comes with the next command",
    "REPAIR": "`doctor --repair` removes stale locks, leftovers and damage, and says what it did.",
    "INDEX-DAMAGE": "Damage in an index, also text that is not UTF-8, is healed by a question, or named and repaired.",
    "HEALTH-KEY": "a key is told to be there, never shown",
    "API-LINES": "The ten lines of docs/api.md run, and every public name of `nugget` exists.",
}
GAPS: dict[str, str] = {}
