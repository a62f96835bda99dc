"""A home with one queued session, for tests of the worker."""

import json
import os
import time
from pathlib import Path

from knowledge_files import commit
from paths import REPOSITORY, TESTS
from sessions import write_transcript

from nugget.infra import files, git

LESSONS = [(said, reply) for said, reply in json.loads((TESTS / "fixtures" / "lessons.json").read_text("utf-8"))]


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
