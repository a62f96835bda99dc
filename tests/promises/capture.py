"""The write path: git, capture, review, hook, queue, worker."""

PROMISES: dict[str, str] = {
    "CAPTURE-UNTOUCHED": "A proposal is written without touching the user's checkout, index, branch or hooks.",
}
GAPS: dict[str, str] = {}
