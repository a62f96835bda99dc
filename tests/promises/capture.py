"""The write path: git, capture, review, hook, queue, worker."""

PROMISES: dict[str, str] = {
    "CAPTURE-UNTOUCHED": "A proposal is written without touching the user's checkout, index, branch or hooks.",
    "CAPTURE-BRANCH": "A session becomes one commit on nugget/session-<timestamp>-<short id>, with title, table, evidence.",
    "CAPTURE-ONCE": "Capturing a session twice, its resumed growth, or its fork adds nothing twice.",
    "CAPTURE-DUPLICATE": "What the brain says already is left out; what adds to a file is proposed as an edit of it.",
    "CAPTURE-HOSTILE": "Hostile units cannot leave the brain, forge frontmatter or trailers, or mention anyone.",
    "CAPTURE-ARCHIVE": "A session whose transcript the client deleted is captured from the redacted archive.",
}
GAPS: dict[str, str] = {}
