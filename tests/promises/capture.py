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
    "HOOK-QUEUES": "A session's end leaves one complete queue file and no output.",
    "HOOK-NEVER-FAILS": "Whatever is on stdin and however broken the home is, the hook exits 0 without a word.",
    "HOOK-RECURSION": "A session that Nugget itself started is not captured.",
    "HOOK-NOTICE": "The person is told that the session will be analyzed, where the client shows it.",
    "HOOK-CATCH-UP": "A session's start has missed sessions looked for, at most once an hour.",
    "HOOK-DETACHED": "The worker survives the hook's end, a hang-up and SIGTERM.",
    "HOOK-ONE-WORKER": "Twenty sessions that end in the same second start one worker, which takes them all.",
    "QUEUE-STATES": "Every job ends done, skipped or failed, with the reason; one failure never stops the rest.",
    "QUEUE-RETRY": "Failed jobs are tried again, each time later, and after about a day left to a person.",
    "QUEUE-RECOVERY": "What a killed worker left is taken up; a job that kills workers is put off.",
    "QUEUE-CATCH-UP": "Catch-up queues the transcripts that were never captured or grew, and no others.",
    "QUEUE-MEMORY": "A queue of a thousand jobs drains without growth in memory.",
}
GAPS: dict[str, str] = {}
