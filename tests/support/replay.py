"""Real repositories for tests of provenance: a recorded session replayed into git, or an agent that a test plays.

`replay` takes a transcript, makes a git repository in which its files stand as they were before it, writes what the
session wrote, edit by edit, and commits it; `change_by_hand` then plays the person. `Agent` plays a session of its
own: what it does happens on disk and in git, and stands in a transcript in Claude Code's format.
"""

import json
import os
import re
import subprocess
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sessions import STARTED, claude_record

from nugget.models import EventKind, Session
from nugget.sources.claude_code import read_session


def git(repo: Path, *args: str, at: datetime | None = None) -> str:
    """Run git in a repository, with commits dated `at`."""
    dates = {} if at is None else dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), at.isoformat())
    command = ["git", "-C", str(repo), *args]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | dates).stdout


def make_repository(folder: Path, *, remote: str | None = None) -> Path:
    """An empty git repository."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    if remote:
        git(folder, "remote", "add", "origin", remote)
    return folder


def commit(repo: Path, message: str, *, at: datetime) -> str:
    """Commit everything, dated `at`; returns the commit."""
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "--allow-empty", "-m", message, at=at)
    return git(repo, "rev-parse", "HEAD").strip()


def change_by_hand(repo: Path, path: str, text: str, *, at: datetime | None = None) -> None:
    """Write a file as a person would, and with `at` commit it."""
    (repo / path).parent.mkdir(parents=True, exist_ok=True)
    (repo / path).write_text(text, "utf-8", newline="")
    if at is not None:
        commit(repo, f"Change {path} by hand", at=at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A session replayed: the repository, the transcript with its paths, the session, and the paths it changed."""

    repo: Path
    transcript: Path
    session: Session
    paths: tuple[str, ...]


def project_folder(claude_config: Path, cwd: Path) -> Path:
    """Where Claude Code keeps the transcripts of a folder."""
    return claude_config / "projects" / re.sub(r"[^A-Za-z0-9]", "-", str(cwd))


def replay(transcript: Path, repo: Path, claude_config: Path, *, remote: str | None = None) -> Replay:
    """Replay the edits of a real transcript into a new repository at `repo`.

    The transcript is copied below `claude_config` with the recorded folder replaced by `repo`. Its files are committed
    as they were an hour before the session, and as it left them when it ended.
    """
    recorded = read_session(transcript)
    assert recorded.cwd and recorded.started and recorded.ended, f"{transcript} tells too little"
    copy = project_folder(claude_config, repo) / f"{recorded.id}.jsonl"
    copy.parent.mkdir(parents=True, exist_ok=True)
    here = json.dumps(str(repo))[1:-1]
    copy.write_text(transcript.read_text("utf-8", errors="replace").replace(recorded.cwd, here), "utf-8")
    make_repository(repo, remote=remote)
    (repo / "LICENSE").write_text("MIT\n", "utf-8")
    session = read_session(copy)
    steps = [step for step in _results(copy) if Path(step["filePath"]).is_relative_to(repo)]
    started: dict[str, str] = {}
    for step in steps:
        started.setdefault(step["filePath"], step.get("originalFile") or "")
    for path, content in started.items():
        if content:
            change_by_hand(repo, str(Path(path).relative_to(repo)), content)
    commit(repo, "As it was before the session", at=recorded.started - timedelta(hours=1))
    for step in steps:
        _carry_out(step)
    commit(repo, "What the session did", at=recorded.ended)
    paths = tuple(str(Path(path).relative_to(repo)) for path in started)
    return Replay(repo=repo, transcript=copy, session=session, paths=paths)


def _results(transcript: Path) -> list[dict[str, Any]]:
    """The structured results of Write and Edit in a transcript, in order."""
    live = {
        event.call_id for event in read_session(transcript).events if event.kind is EventKind.FILE_EDIT and event.ok
    }
    found = []
    for line in transcript.read_text("utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        details = record.get("toolUseResult") if isinstance(record, dict) else None
        if isinstance(details, dict) and isinstance(details.get("filePath"), str):
            blocks = record.get("message", {}).get("content")
            if isinstance(blocks, list) and any(block.get("tool_use_id") in live for block in blocks):
                found.append(details)
    return found


def _carry_out(step: dict[str, Any]) -> None:
    file = Path(step["filePath"])
    file.parent.mkdir(parents=True, exist_ok=True)
    if "content" in step:
        content = step["content"]
    else:
        old = step["oldString"]
        # The client takes the line end along when lines are deleted.
        old += "\n" if not step["newString"] and not old.endswith("\n") and f"{old}\n" in step["originalFile"] else ""
        content = step["originalFile"].replace(old, step["newString"], -1 if step["replaceAll"] else 1)
    file.write_text(content, "utf-8", newline="")


@dataclass(slots=True)
class Agent:
    """An agent that a test plays in a repository: it edits, runs commands, and writes Claude Code's transcript."""

    repo: Path
    claude_config: Path
    started: datetime = STARTED
    session: str = field(default_factory=lambda: str(uuid.uuid4()))
    moment: datetime = field(init=False)
    parent: str | None = None

    def __post_init__(self) -> None:
        self.moment = self.started

    @property
    def transcript(self) -> Path:
        """The file that the session stands in."""
        return project_folder(self.claude_config, self.repo) / f"{self.session}.jsonl"

    def prompt(self, text: str) -> None:
        """What the person says."""
        self._record("user", text)

    def reply(self, text: str) -> None:
        """What the agent says."""
        self._record("assistant", [{"type": "text", "text": text}])

    def write(self, path: str, content: str) -> None:
        """Write a whole file with the Write tool."""
        file = self.repo / path
        old = file.read_text("utf-8") if file.exists() else None
        change_by_hand(self.repo, path, content)
        details = {
            "type": "create" if old is None else "update", "filePath": str(file), "content": content,
            "originalFile": old, "structuredPatch": [],
        }  # fmt: skip
        self._tool("Write", {"file_path": str(file), "content": content}, "File created successfully", details)

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace text in a file with the Edit tool."""
        file = self.repo / path
        original = file.read_text("utf-8")
        assert old in original, f"{old!r} is not in {path}"
        file.write_text(original.replace(old, new, 1), "utf-8", newline="")
        details = {
            "filePath": str(file), "oldString": old, "newString": new, "originalFile": original,
            "structuredPatch": [], "userModified": False, "replaceAll": False,
        }  # fmt: skip
        given = {"file_path": str(file), "old_string": old, "new_string": new, "replace_all": False}
        self._tool("Edit", given, "The file has been updated.", details)

    def run(self, command: str) -> str:
        """Run a command with the Bash tool, really; commits are dated at this moment of the session."""
        dates = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), self.moment.isoformat())
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.repo, capture_output=True, text=True, env=os.environ | dates
        )
        said = done.stdout + done.stderr
        content = said if done.returncode == 0 else f"Exit code {done.returncode}\n{said}"
        details = {"stdout": done.stdout, "stderr": done.stderr, "interrupted": False}
        self._tool("Bash", {"command": command}, content, details, failed=done.returncode != 0)
        return said

    def commit(self, message: str) -> None:
        """Commit everything as agents do it."""
        self.run(f"git add -A && git commit -m '{message}'")

    def _tool(
        self, name: str, given: dict[str, Any], said: str, details: dict[str, Any], *, failed: bool = False
    ) -> None:
        call = f"toolu_{uuid.uuid4().hex[:20]}"
        self._record("assistant", [{"type": "tool_use", "id": call, "name": name, "input": given}])
        result = {"type": "tool_result", "tool_use_id": call, "content": said, "is_error": failed}
        self._record("user", [result], toolUseResult=details)

    def _record(self, role: str, content: Any, **more: Any) -> None:
        self.moment += timedelta(seconds=5)
        record = claude_record(role, content, session=self.session, parent=self.parent, cwd=self.repo, at=self.moment)
        self.parent = record["uuid"]
        self.transcript.parent.mkdir(parents=True, exist_ok=True)
        with self.transcript.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(record | more) + "\n")
