"""A home with one queued session, for tests of the worker."""

import os
import time
from pathlib import Path

from knowledge_files import commit
from paths import REPOSITORY
from sessions import write_transcript

from nugget.infra import files, git

LESSONS = [
    (
        "Why was the customer charged twice? Always create the idempotency key before the first attempt of a payment, "
        "because a key made inside the retry loop is new for each attempt and the customer is charged twice.",
        "The root cause is that the client retried the payment without an idempotency key after a timeout. "
        "The key is now made before the loop.",
    ),
    (
        "Never run database migrations from the application's start-up code, they must run as a separate job.",
        "Agreed. We decided to run migrations as a separate job instead of at start-up, because two replicas that "
        "start at the same time would both try to migrate and deadlock.",
    ),
]


def lay_out(home: Path) -> None:
    """A HOME with a small brain, and one session of which the end is queued."""
    brain = home / "brain"
    (brain / "domains").mkdir(parents=True)
    (home / ".gitconfig").write_text("[user]\n\tname = Test\n\temail = test@example.invalid\n")
    (brain / "brain.yaml").write_text("owner: test\n")
    (brain / ".gitignore").write_text(".nugget/\n")
    git.init(brain)
    commit(brain, ["brain.yaml", ".gitignore"], "First")
    transcript = home / ".claude/projects/-srv-shop/s.jsonl"
    session = write_transcript(transcript, LESSONS)
    files.queue_job(home / ".nugget", {"queued": time.time(), "session": session, "transcript": str(transcript)})


def variables(home: Path, **more: str) -> dict[str, str]:
    ours = {"HOME": str(home), "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'tests/support'}"}
    ours["NUGGET_EMBEDDING_MODEL"] = "none"
    return {**os.environ, **ours, **more}
