"""Promises about measuring a brain: golden questions, the query log, other languages."""

PROMISES: dict[str, str] = {
    "QUERIES-CODE": "Questions about code are in the log, with budget and agent, those without results too.",
    "EVAL-METRICS": "recall@k, MRR@10 and nDCG@10 are those of the literature",
    "EVAL-GOLDEN": "golden questions are read with their filters; what is wrong is named with file and line",
    "EVAL-EXPLAINS": "of a question whose unit is not first: the rank, the list that missed it, and what came instead",
    "EVAL-COMPARES": "a run is compared with the last one or with a baseline, and fails beyond the threshold only",
    "EVAL-UNKNOWN-ID": "an expected unit that does not exist is an error with file and line, a forgotten one a warning",
    "EVAL-UNANSWERABLE": "a question that expects nothing measures whether the brain says that it does not know",
    "LOG-RECORDS": "a question through a face is logged with what came back; evaluation and capture are not",
    "LOG-PRIVATE": "the query log holds no secret and nobody else may read it; it can be switched off",
    "LOG-HARMLESS": "a log that cannot be written or read fails no question, and costs less than a millisecond",
    "LOG-BOUNDED": "the query log does not grow without bound",
    "QUERIES-REPORT": "nugget queries shows top, zero-result and weak questions, p50, p95 and coverage",
    "USED-LATER": "a returned unit that the session later cites, or whose file it edits, counts as used, once",
    "LANG-BM25": "in eleven languages and scripts words alone put the right unit first for 95 of 100 questions",
    "LANG-DEFAULT": "the English default model takes nothing away from other languages",
}
