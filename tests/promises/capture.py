"""The write path: git, capture, review, hook, queue, worker."""

PROMISES: dict[str, str] = {
    "CAPTURE-UNTOUCHED": "A proposal is written without touching the user's checkout, index, branch or hooks.",
    "CAPTURE-BRANCH": "A session becomes one commit on nugget/session-<timestamp>-<short id>, with table and evidence.",
    "CAPTURE-ONCE": "Capturing a session twice, its resumed growth, or its fork adds nothing twice.",
    "CAPTURE-DUPLICATE": "What the brain says already is left out; what adds to a file is proposed as an edit of it.",
    "CAPTURE-HOSTILE": "Hostile units cannot leave the brain, forge frontmatter or trailers, or mention anyone.",
    "CAPTURE-ARCHIVE": "A session whose transcript the client deleted is captured from the redacted archive.",
    "REVIEW-ACCEPT": "Accepting merges into the checked-out branch and keeps every uncommitted change of the user.",
    "REVIEW-PARTIAL": "Single files of a proposal can be accepted; the rest goes on waiting.",
    "REVIEW-REJECT": "What was rejected is remembered and not proposed again.",
}
GAPS: dict[str, str] = {}
