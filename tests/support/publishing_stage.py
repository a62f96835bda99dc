"""A brain whose origin is a forge on loopback, for tests of publishing and following."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from knowledge_files import commit
from loopback_github import GitHubServer
from loopback_gitlab import GitLabServer
from sessions import NOW, STARTED, ScriptedExtraction, capture_into, unit, write_transcript

from nugget.capture import capture_transcript, following, review
from nugget.capture import publish as publishing
from nugget.capture.publish import Published
from nugget.config import Environment, load_settings, read_environment
from nugget.infra import git
from nugget.models import Unit
from nugget.settings import Settings
from nugget.upkeep import trust

Every = Literal["session", "day", "week"]
RETRY = unit("retry-once", "Retry a payment once. A second retry doubles the load.", id="pattern/retry-once")
LOCKS = unit("lock-order", "Take locks in one order. Two orders deadlock sooner or later.", id="pattern/lock-order")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A brain whose origin is the loopback GitHub."""

    brain: Path
    home: Path
    folder: Path
    server: Any

    @property
    def environment(self) -> Environment:
        return read_environment()

    def propose(self, *units: Unit, name: str = "s", every: Every = "session") -> str:
        """A captured session; the branch of its proposal."""
        transcript = self.folder / f"{name}.jsonl"
        write_transcript(transcript, [(f"What about {entry.title}?", entry.body) for entry in units], started=STARTED)
        bound = capture_into(self.brain, self.home, ScriptedExtraction(units), settings=Settings(publish_every=every))
        result = capture_transcript(transcript, *bound)
        assert result.branch
        return result.branch

    def refuses(self, entry: Unit) -> None:
        """A unit is not proposed again."""
        again = self.folder / "again.jsonl"
        write_transcript(again, [(f"And {entry.title}?", entry.body)])
        result = capture_transcript(again, *capture_into(self.brain, self.home, ScriptedExtraction([entry])))
        assert result.branch is None and "turned down before" in " ".join(result.dropped)

    def publish(self) -> Published:
        loaded = load_settings(self.environment, self.brain)
        return publishing.publish(self.brain, environment=self.environment, settings=loaded, now=NOW)

    def follow(self, *, rebase: bool = False) -> following.Followed:
        loaded = load_settings(self.environment, self.brain)
        return following.follow(self.brain, environment=self.environment, settings=loaded, now=NOW, rebase=rebase)

    def pull(self) -> str | None:
        """The new commit; raises what stands in the way."""
        done = self.follow()
        if done.problems:
            raise done.problems[0]
        return done.commit

    def accept(self, *units: str, name: str | None = None) -> review.Decided:
        return self.decide(review.Decision(accept=units or None), name=name)

    def decide(self, decision: review.Decision, *, name: str | None = None) -> review.Decided:
        loaded = load_settings(self.environment, self.brain)
        return following.decide(self.brain, name, decision, environment=self.environment, settings=loaded, now=NOW)

    def states(self) -> dict[str, str]:
        return {name: entry.state for name, entry in publishing.publications(self.brain, home=self.home).items()}

    def waiting(self) -> list[str]:
        return [file.id for proposal in review.proposals(self.brain) for file in proposal.files]


@contextmanager
def laid_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, on: type[GitHubServer | GitLabServer] = GitHubServer
) -> Iterator[Place]:
    """Make the brain, start the server, and point the environment at both."""
    brain = tmp_path / "brain"
    (brain / "domains").mkdir(parents=True)
    (brain / "brain.yaml").write_text("owner: test\n")
    (brain / ".gitignore").write_text(".nugget/\n")
    git.init(brain)
    commit(brain, ["brain.yaml", ".gitignore"], "First")
    monkeypatch.setenv("NUGGET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NUGGET_BRAIN", str(brain))
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    trust(read_environment(), brain)
    with on(tmp_path / "forge") as server:
        for name, value in server.client_variables.items():
            monkeypatch.setenv(name, value)
        git.run(brain, "remote", "add", "origin", server.url)
        subprocess.run(["git", "-C", brain, "push", "-q", server.bare, "main"], check=True)
        yield Place(brain=brain, home=tmp_path / "home", folder=tmp_path, server=server)
