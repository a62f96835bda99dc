"""What a fault is tried on: a home, a brain, commands that change them and may die, and what must hold after."""

import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from cli_stage import write_unit
from knowledge_files import commit, shell
from paths import REPOSITORY
from sessions import write_transcript

from nugget.infra import git

CHANGES = {f"os.{name}" for name in "rename remove mkdir rmdir link symlink truncate chmod".split()}
"""Python's audit events for calls that change files; opening to write and statements of SQL that write count too."""
_MODULES = [file.relative_to(REPOSITORY).with_suffix("") for file in REPOSITORY.glob("nugget/**/[a-z]*.py")]
_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(["pytest", *(".".join(module.parts) for module in _MODULES)])


class Ended(NamedTuple):
    """How a command ended: its exit code, or the signal as a negative number, and what it printed."""

    code: int | None
    output: str


def run(arguments: Sequence[str], variables: Mapping[str, str], folder: Path) -> Ended:
    """Run `nugget <arguments>` with exactly these variables; FAULT_CHANGE and FAULT_COUNT among them let it die."""
    with tempfile.NamedTemporaryFile() as output:
        process = _FORKED.Process(target=_become, args=(arguments, variables, folder, output.name))
        process.start()
        process.join()
        return Ended(process.exitcode, output.read().decode("utf-8", "replace"))


def _become(arguments: Sequence[str], variables: Mapping[str, str], folder: Path, output: str) -> None:
    code = 3
    try:
        printed = os.open(output, os.O_WRONLY | os.O_APPEND)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        os.environ.clear()
        os.environ.update(variables)
        os.chdir(folder)
        from nugget.cli import run

        if "FAULT_CHANGE" in variables:
            _die_at(int(variables["FAULT_CHANGE"]), variables["FAULT_COUNT"])
        code = run(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _die_at(number: int, counted: str) -> None:
    """Die of SIGKILL at the `number`-th call or statement that changes files; how many there were stands in a file.

    A file that is opened to be written is there by then, and empty.
    """
    seen = 0
    file = os.open(counted, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)

    def count(statement: str = "", *, opening: tuple[Any, int] | None = None) -> None:
        nonlocal seen
        if statement.startswith(("SELECT", "PRAGMA", "--")):
            return
        seen += 1
        os.pwrite(file, b"%d" % seen, 0)
        if seen == number:
            with suppress(OSError):
                _ = opening and os.open(*opening, 0o600)
            os.kill(os.getpid(), signal.SIGKILL)

    opened: list[Any] = []

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        while opened:
            with suppress(sqlite3.ProgrammingError):  # it is closed again
                opened.pop().set_trace_callback(count)
        if event == "sqlite3.connect/handle":
            opened.append(arguments[0])  # it cannot be used before the next event
        elif event == "open" and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            count(opening=(arguments[0], arguments[2]))
        elif event in CHANGES:
            count()

    sys.addaudithook(hear)


FAULTS = {"": 1, "all": 0}.get(given := os.environ.get("NUGGET_FAULTS", ""), int(given) if given.isdigit() else 1)
"""So many steps of each kind are tried, 0 for all: 1 unless NUGGET_FAULTS, which `make faults` sets, says otherwise."""

SETTINGS = (".claude.json", ".claude/settings.json", ".nugget/config.yaml", ".nugget/trusted.json")
UNITS = {
    "pattern/retry": ("Retry payments with an idempotency key", "uses: concept/keys"),
    "concept/keys": ("An idempotency key names one payment", ""),
    "decision/queue": ("Payments go through one queue", "informed_by: pattern/retry"),
    "bug/double": ("Customers were charged twice", "informed_by: pattern/retry"),
}


@dataclass(frozen=True, kw_only=True)
class Writing:
    """A command that changes something: what comes before it, its arguments, and what it needs of the stage."""

    arguments: tuple[str, ...]
    before: tuple[tuple[str, ...], ...] = ()
    spoil: Callable[[Path], None] = lambda folder: None
    """What else happens to the stage before the command."""
    derives: bool = False
    """The command also derives something, which it completes when it is run again."""
    variables: Mapping[str, str] = field(default_factory=dict)
    again: bool = False
    """A part may be there after a fault, which the same command completes: it is derived, or of another program."""


def damage(folder: Path) -> None:
    """Damage the index, and leave what processes that are gone leave: a lock of git's and a temporary file."""
    index = folder / "brain" / ".nugget" / "index.db"
    content = bytearray(index.read_bytes())
    content[4096:8192] = b"\xff" * 4096
    index.write_bytes(content)
    lock = folder / "brain" / ".git" / "index.lock"
    lock.touch()
    os.utime(lock, (0, 0))
    (folder / "home" / ".nugget" / ".config.yaml.999999999.0a1b2c3d.partial").touch()


TALK = (
    ("We decided to use uv and never pip for this repository.", "Understood: uv it is, because pip resolves slowly."),
    ("Always run the migrations before the tests.", "Yes: the tests fail without the tables."),
)
CAPTURE = ("capture-session", "--transcript", "{stage}/talk.jsonl", "--with", "offline")
WRITINGS = {
    "add": Writing(arguments=("add", "# Keep logs short\n\nOne line an event.", "--domain", "coding")),
    "forget": Writing(arguments=("forget", "pattern/retry")),
    "mv": Writing(arguments=("mv", "pattern/retry", "--name", "retries")),
    "capture-session": Writing(arguments=CAPTURE, derives=True),
    "accept": Writing(arguments=("review", "accept", "{proposal}"), before=(CAPTURE,)),
    "reject": Writing(arguments=("review", "reject", "{proposal}"), before=(CAPTURE,)),
    "import": Writing(arguments=("import", "{stage}/notes")),
    "first sync": Writing(arguments=("sync", "--source", "brain"), again=True),
    "rebuild": Writing(arguments=("sync", "--rebuild", "--source", "brain"), before=(("sync",),), again=True),
    "extract": Writing(arguments=("extract", "--all"), again=True),
    "install": Writing(arguments=("install",), again=True),
    "uninstall": Writing(arguments=("uninstall",), before=(("install",),), again=True),
    "trust": Writing(
        arguments=("trust", "{stage}/other"), spoil=lambda at: shutil.copytree(at / "brain", at / "other")
    ),
    "clone": Writing(arguments=("clone", "{stage}/brain", "{stage}/other"), again=True),
    "repair": Writing(arguments=("doctor", "--repair"), before=(("sync",),), spoil=damage, again=True),
    "worker": Writing(arguments=("capture", "--catch-up"), derives=True),
    "rules of redaction": Writing(arguments=CAPTURE, variables={"KF_RULE_CACHE_DIR": ""}, derives=True),
    "init": Writing(arguments=("init", "{stage}/other", "--no-install"), again=True),
}

NAMES = [*WRITINGS] if given else ["mv", "accept", "worker"]


@dataclass(frozen=True)
class Stage:
    """A folder with everything, and a copy of it from which each trial starts."""

    folder: Path

    @property
    def brain(self) -> Path:
        """The brain in use."""
        return self.folder / "brain"

    @property
    def template(self) -> Path:
        """The copy."""
        return self.folder.with_name(f"{self.folder.name}.template")

    def build(self) -> None:
        """Make home, brain, a transcript and notes."""
        talk = self.folder / "home" / ".claude" / "projects" / "-srv-shop" / "talk.jsonl"
        write_transcript(talk, TALK, session="5f0c7a52-0000-4000-8000-000000000001")
        shutil.copy(talk, self.folder)
        (self.folder / "home" / ".gitconfig").write_text(
            "[user]\n\tname = Test\n\temail = test@example.invalid\n[init]\n\tdefaultBranch = main\n[gc]\n\tauto = 0\n"
        )
        self.must("init", str(self.brain), "--no-install")
        for name, (title, related) in UNITS.items():
            relation, _, target = related.partition(": ")
            links = f"[{{id: {target}, relation: {relation}}}]" if related else "[]"
            write_unit(self.brain, name, f"# {title}\n\n{title} {'so ' * 30}.", related=links)
        commit(self.brain, ["domains"], "Knowledge")
        for number in range(2):
            text = f"# Note {number}\n\nCache answers for {number + 5} minutes, always.\n"
            (self.folder / "notes").mkdir(exist_ok=True)
            (self.folder / "notes" / f"note-{number}.md").write_text(text)

    def keep(self) -> None:
        """Let later trials start from what is here now."""
        shutil.rmtree(self.template, ignore_errors=True)
        shutil.copytree(self.folder, self.template, symlinks=True)

    def reset(self) -> None:
        """Go back to what was kept."""
        for entry in self.folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        shutil.copytree(self.template, self.folder, symlinks=True, dirs_exist_ok=True)

    def run(self, *arguments: str, **variables: str) -> Ended:
        """Run a command line; `{stage}` and `{proposal}` are filled in."""
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.folder / "home"), "NUGGET_BRAIN": str(self.brain),
            "KF_RULE_CACHE_DIR": str(REPOSITORY / ".models" / "rules"),
            "NUGGET_EMBEDDING_MODEL": "none", "GIT_CONFIG_NOSYSTEM": "1", "NO_COLOR": "1", "TZ": "UTC",
            "PYTHONPATH": str(REPOSITORY),
        }  # fmt: skip
        return run([self.fill(argument) for argument in arguments], {**environment, **variables}, self.folder)

    def must(self, *arguments: str, **variables: str) -> None:
        """Run a command line that has to succeed."""
        ended = self.run(*arguments, **variables)
        assert ended.code == 0, (arguments, ended)

    def fill(self, argument: str) -> str:
        """Put in where the stage is, and which proposal waits."""
        if argument == "{proposal}":
            return (self.proposals() or ["nugget/none"])[0]
        return argument.replace("{stage}", str(self.folder))

    def proposals(self) -> list[str]:
        """The branches that wait for review."""
        return shell(self.brain, "for-each-ref", "--format=%(refname:short)", "refs/heads/nugget").split()

    def state(self) -> dict[str, object]:
        """Everything that must be as before a command or as after it: no times, no random names."""
        found: dict[str, object] = {}
        for name in ("brain", "other"):
            repository = self.folder / name
            if not (repository / ".git").is_dir():
                continue
            is_born = git.head(repository) is not None
            lines = shell(repository, "ls-tree", "-r", "HEAD").splitlines() if is_born else []
            found[name] = {  # but for a brain.yaml that init made, which has an id that is random
                "knowledge": [line for line in lines if name == "brain" or not line.endswith("\tbrain.yaml")],
                "subjects": shell(repository, "log", "--format=%s") if is_born else "",
                "untracked": shell(repository, "status", "--porcelain", "-uall"),
            }
        found["proposals"] = sorted(shell(self.brain, "ls-tree", "-r", one, "domains") for one in self.proposals())
        home = self.folder / "home"
        found["settings"] = {name: file.read_text() for name in SETTINGS if (file := home / name).is_file()}
        rejected = home / ".nugget" / "ledger" / "rejected.jsonl"
        decided = rejected.read_text().splitlines() if rejected.is_file() else []
        found["rejected"] = sorted(json.loads(line)["id"] for line in decided)
        return found

    def derived(self) -> dict[str, object]:
        """What the indexes and the store of provenance hold, each thing counted."""
        found: dict[str, object] = {}
        index = self.brain / ".nugget" / "index.db"
        if index.is_file():
            with closing(sqlite3.connect(index)) as database:
                assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
                found["units"] = sorted(database.execute("SELECT id, title FROM units").fetchall())
        lines = Counter[str]()
        for file in sorted((self.folder / "home" / ".nugget" / "provenance").glob("*/*.jsonl")):
            for line in file.read_text().splitlines():
                value = json.loads(line)
                lines[json.dumps({key: value.get(key) for key in ("kind", "type", "summary")}, sort_keys=True)] += 1
        found["provenance"] = dict(lines)
        found["archive"] = len([*(self.folder / "home" / ".nugget" / "archive").glob("*.jsonl.gz")])
        return found

    def check(self) -> None:
        """What holds after any fault once another command ran."""
        shell(self.brain, "fsck", "--no-progress", "--no-dangling")
        assert shell(self.brain, "status", "--porcelain", "-uall") == "", "the checkout is not what HEAD says"
        assert [path for path in (self.brain / "domains").rglob("*") if path.is_file() and path.suffix != ".md"] == []


Faults = Callable[[Stage, Callable[..., Ended]], Iterator[tuple[str, Ended]]]
"""Performs a command on the stage again and again, each time with a fault; yields which, and how the command ended."""


def survives_all(name: str, folder: Path, faults: Faults, record_property: Callable[[str, object], None]) -> None:
    """Try each of the faults on a command of the table; fail with those after which not all was done, or nothing."""
    writing, stage = WRITINGS[name], Stage(folder)
    folder.mkdir()
    stage.build()
    states = prepare(stage, writing)
    tried, wrong = 0, []
    for label, ended in faults(stage, lambda **more: stage.run(*writing.arguments, **{**writing.variables, **more})):
        tried += 1
        try:
            assert ended.code in (0, 1, 2, -9) and "Traceback" not in ended.output, ended
            survives(stage, writing, states)
        except AssertionError as error:
            wrong.append(f"{label}: {str(error)[:600]}")
    record_property("faults", f"{faults.__name__}: {name}: tried {tried}, survived {tried - len(wrong)}")
    assert tried and not wrong, "\n".join([f"{len(wrong)} of {tried}", *wrong[:20]])


def prepare(stage: Stage, writing: Writing) -> tuple[dict[str, object], dict[str, object], dict[str, object]]:
    """The state before the command, the one after it, and what can be derived after it."""
    stage.must(*CAPTURE, "--dry-run")  # compiles the rules of redaction, once on this machine
    for line in writing.before:
        stage.must(*line)
    writing.spoil(stage.folder)
    stage.keep()
    before = stage.state()
    stage.must(*writing.arguments, **writing.variables)
    after = stage.state()
    stage.must("sync", "--source", "brain")
    derived = stage.derived()
    stage.reset()
    return before, after, derived


def survives(stage: Stage, writing: Writing, states: tuple[dict[str, object], ...]) -> None:
    """Another command puts everything in order: all was done, or nothing, and then it can be done."""
    before, after, derived = states
    writing = replace(writing, arguments=tuple(stage.fill(argument) for argument in writing.arguments))
    stage.must("sync", "--source", "brain")
    stage.check()
    between = None if writing.again else stage.state()
    assert between in (None, before, after), "neither before nor after"
    if between != after or writing.derives:
        stage.must(*writing.arguments, **writing.variables)
        assert stage.state() == after, "done again, it is not what it would have been"
    stage.must("sync", "--source", "brain")
    assert stage.derived() == derived, "what is derived is not what it would have been"
    stage.check()
    assert [*stage.folder.glob(".*.nugget-clone")] == []
