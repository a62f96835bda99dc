"""Commands in any order, against a simple model of what a brain, its proposals and its memory then hold."""

import shutil
import subprocess
from pathlib import Path

import pytest
from commands import Nugget, Result
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from laboratory import FAULTS
from sessions import write_transcript

from nugget.brain.knowledge_file import parse
from nugget.models import Unit

SAID = (
    "We decided to use uv and never pip for this repository, because pip resolves slowly.",
    "Always run the database migrations before the integration tests.",
    "We decided that payments go through one Kafka queue, because retries must keep their order.",
    "Never log customer addresses, not even at debug level.",
)
"""What a session may say; each becomes one unit, and is known again by these words."""
WRITTEN = ("Caches", "Deadlines", "Feature flags")
"""Titles of what is added by hand."""
topics = st.integers(0, len(SAID) - 1)
places = st.integers(0, 7)
"""Which of the units or proposals that there are, counted round."""


class Machine(RuleBasedStateMachine):
    """A brain and the model: topics are the words of `SAID` and `WRITTEN`; the model knows each by its number."""

    nugget: Nugget
    template: Path
    folder: Path

    def __init__(self) -> None:
        super().__init__()
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.template, self.folder, symlinks=True)
        self.units: dict[str, int] = {}
        """Topic of each unit that is committed, by id."""
        self.links: dict[str, str] = {}
        """The one relation that a unit may have, by id."""
        self.edited: dict[str, list[str]] = {}
        """Lines that the user added to units, by id."""
        self.open: set[str] = set()
        """Units with such a line that is not committed."""
        self.waiting: dict[str, set[int]] = {}
        """Topics of each proposal, by branch."""
        self.unwanted: set[int] = set()
        """Topics that were rejected or forgotten."""
        self.sessions: list[tuple[Path, tuple[int, ...]]] = []

    @property
    def brain(self) -> Path:
        return self.folder / "brain"

    def git(self, *arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(self.brain), *arguments], check=True, capture_output=True, text=True
        ).stdout

    def committed(self) -> dict[str, tuple[str, Unit]]:
        """Return path and unit of every knowledge file of HEAD."""
        found: dict[str, tuple[str, Unit]] = {}
        for path in self.git("ls-tree", "-r", "--name-only", "HEAD", "domains").split():
            unit = parse(self.git("show", f"HEAD:{path}"), path=path).unit
            assert unit is not None and unit.id not in found, path
            found[unit.id] = (path, unit)
        return found

    def proposed(self) -> dict[str, set[int]]:
        return {
            proposal["branch"]: {topic_of(file["evidence"][0]["quote"]) for file in proposal["files"]}
            for proposal in self.nugget("review", "list", "--json").json
        }

    def a_unit(self, place: int) -> str:
        return sorted(self.units)[place % len(self.units)]

    def expect(self, code: int, result: Result) -> None:
        assert result.code == code and "Traceback" not in result.out + result.err, result

    @rule(topic=st.integers(0, len(WRITTEN) - 1), to=places)
    def add(self, topic: int, to: int) -> None:
        number = len(SAID) + topic
        title = WRITTEN[topic]
        id = f"concept/{title.lower().replace(' ', '-')}"
        target = self.a_unit(to) if self.units else None
        related = f"related:\n- {{id: {target}, relation: uses}}\n" if target else ""
        text = (
            f"---\nid: {id}\ntype: concept\ndomain: coding\nconfidence: 0.8\nsource: manual\ncreated: 2026-01-01\n"
            f"last_modified: 2026-01-01\n{related}---\n# {title}\n\nAbout {title.lower()} there is this to know.\n"
        )
        known = id in self.units
        self.expect(1 if known else 0, self.nugget("add", "--", text))
        if not known:
            self.units[id] = number
            self.unwanted.discard(number)
            if target:
                self.links[id] = target

    @rule(said=st.sets(topics, min_size=1, max_size=2))
    def capture(self, said: set[int]) -> None:
        file = self.folder / f"{len(self.sessions)}.jsonl"
        session = f"{len(self.sessions):08x}-0000-4000-8000-000000000000"  # names the branch, so that it sorts the same
        write_transcript(file, [(SAID[topic], "Understood.") for topic in sorted(said)], session=session)
        self.sessions.append((file, tuple(said)))
        self.captured(file, said)

    @precondition(lambda self: self.sessions)
    @rule(place=places)
    def capture_again(self, place: int) -> None:
        file, _ = self.sessions[place % len(self.sessions)]
        self.captured(file, set())

    def captured(self, file: Path, said: set[int]) -> None:
        self.expect(0, self.nugget("capture-session", "--transcript", file, "--with", "offline"))
        known = {*self.units.values(), *self.unwanted, *(topic for branch in self.waiting.values() for topic in branch)}
        now = self.proposed()
        fresh = {branch: topics for branch, topics in now.items() if branch not in self.waiting}
        assert set().union(*fresh.values()) == said - known, (fresh, said, known)
        self.waiting.update(fresh)

    @precondition(lambda self: self.waiting)
    @rule(place=places, one=st.booleans(), accepted=st.booleans())
    def decide(self, place: int, one: bool, accepted: bool) -> None:
        branch = sorted(self.waiting)[place % len(self.waiting)]
        files = next(each for each in self.nugget("review", "list", "--json").json if each["branch"] == branch)["files"]
        chosen = files[:1] if one else files
        only = ("--unit", ",".join(file["id"] for file in chosen)) if one else ()
        self.expect(0, self.nugget("review", "accept" if accepted else "reject", branch, *only))
        for file in chosen:
            topic = topic_of(file["evidence"][0]["quote"])
            self.waiting[branch].remove(topic)
            if accepted:
                self.units[file["id"]] = topic
            else:
                self.unwanted.add(topic)
        if not self.waiting[branch]:
            del self.waiting[branch]

    @precondition(lambda self: self.units)
    @rule(place=places, name=st.sampled_from(["first", "second", None]), domain=st.sampled_from(["coding", "ops/db"]))
    def move(self, place: int, name: str | None, domain: str) -> None:
        id = self.a_unit(place)
        kind, slug = id.split("/")
        new = f"{kind}/{name or slug}"
        moved = [other for other, target in self.links.items() if target == id and new != id]
        stays = new == id and self.committed()[id][0].startswith(f"domains/{domain}/{kind}s/")
        refused = (new != id and new in self.units) or (not stays and self.open & {id, *moved})
        result = self.nugget("mv", id, *(("--name", name) if name else ()), "--domain", domain)
        if stays:
            assert "Traceback" not in result.out + result.err
            return
        self.expect(1 if refused else 0, result)
        if not refused:
            self.units = {new if unit == id else unit: topic for unit, topic in self.units.items()}
            self.links = {new if a == id else a: new if b == id else b for a, b in self.links.items()}
            self.edited = {new if unit == id else unit: lines for unit, lines in self.edited.items()}

    @precondition(lambda self: self.units)
    @rule(place=places)
    def forget(self, place: int) -> None:
        id = self.a_unit(place)
        refused = self.open & {id, *(other for other, target in self.links.items() if target == id)}
        self.expect(1 if refused else 0, self.nugget("forget", id))
        if not refused:
            self.unwanted.add(self.units.pop(id))
            self.edited.pop(id, None)
            self.links = {a: b for a, b in self.links.items() if id not in (a, b)}

    @precondition(lambda self: self.units)
    @rule(place=places, number=st.integers(0, 9), commits=st.booleans())
    def edit(self, place: int, number: int, commits: bool) -> None:
        id = self.a_unit(place)
        path = self.brain / self.committed()[id][0]
        line = f"Remark {number} of the user."
        with path.open("a") as file:
            file.write(f"\n{line}\n")
        self.edited.setdefault(id, []).append(line)
        self.open.add(id)
        if commits:
            self.commit()

    @precondition(lambda self: self.open)
    @rule()
    def commit(self) -> None:
        self.git("commit", "-qam", "By hand")
        self.open.clear()

    @rule()
    def sync(self) -> None:
        self.expect(0, self.nugget("sync", "--source", "brain"))
        for id, lines in self.edited.items():
            shown = self.nugget("get", id)
            assert all(line in shown.out for line in lines), (id, shown)
        for id in self.units:
            self.expect(0, self.nugget("get", id))
        assert self.nugget("status", "--json").json["index"]["units"] == len(self.units)

    @invariant()
    def the_brain_is_as_the_model_says(self) -> None:
        found = self.committed()
        assert {id: topic_of(unit.body) for id, (_, unit) in found.items()} == self.units
        assert {id: unit.related[0].id for id, (_, unit) in found.items() if unit.related} == self.links
        for id, lines in self.edited.items():
            text = (self.brain / found[id][0]).read_text()
            assert [text.count(line) for line in lines] == [lines.count(line) for line in lines], (id, text)
        dirty = {line[3:] for line in self.git("status", "--porcelain", "-uall").splitlines()}
        assert dirty == {found[id][0] for id in self.open}
        assert self.proposed() == self.waiting

    def teardown(self) -> None:
        self.git("fsck", "--no-dangling", "--no-progress")
        self.commit() if self.open else None
        self.sync()


def topic_of(text: str) -> int:
    """Return the number of the topic that a text begins with; others may be mentioned after it."""
    begins = [text.lower().find(topic.rstrip(".").split(",")[0].lower()) for topic in (*SAID, *WRITTEN)]
    return min((place, number) for number, place in enumerate(begins) if place >= 0)[1]


@pytest.mark.proves("FAULT-MODEL")
def test_commands_in_any_order_do_what_the_model_says(nugget, isolated_home, tmp_path, monkeypatch):
    template = tmp_path / "template"
    folder = tmp_path / "stage"
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    monkeypatch.setenv("HOME", str(template / "home"))
    (template / "home").mkdir(parents=True)
    shutil.copy(isolated_home / ".gitconfig", template / "home" / ".gitconfig")
    assert nugget("init", template / "brain", "--no-install").code == 0
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.setenv("NUGGET_BRAIN", str(folder / "brain"))

    class Here(Machine):
        pass

    Here.nugget, Here.template, Here.folder = staticmethod(nugget), template, folder
    run_state_machine_as_test(
        Here, settings=settings(max_examples=3 if FAULTS == 1 else 100, stateful_step_count=8 if FAULTS == 1 else 40)
    )
