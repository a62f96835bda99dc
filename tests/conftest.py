"""Isolation and shared fixtures: no test sees the real HOME, the real keys or a network beyond loopback."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from commands import Nugget, Result
from hypothesis import HealthCheck, settings
from paths import REPOSITORY
from programs import program
from team_stage import database_server, empty_database, team_database  # noqa: F401 - fixtures

if TYPE_CHECKING:
    from logs import Logs
    from loopback_anthropic import AnthropicServer

    from nugget.config import Environment
    from nugget.index.embedded.sync import SyncResult
    from nugget.infra.embedding import Embedder
    from nugget.infra.llm import LLM

SHARED_DATA = REPOSITORY.parent / "shared" / "data"

# The same examples in every run, however slow the machine is. To search further: `pytest --hypothesis-profile=default`.
settings.register_profile("suite", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

FOREIGN = tuple(
    "NUGGET_ ANTHROPIC_ GITHUB_ CLAUDE GIT_ SSL_ REQUESTS_ CURL_ OPENAI_ VOYAGE_ AISH CODEX_ GEMINI_ XDG_DATA".split()
)
"""How the variables begin that could lead a test out of its HOME."""

# A run in the background (`nohup … &`) inherits SIGINT as ignored, and so would every command that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def isolated_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A HOME of its own for each test, with a git identity and no keys.

    The converted embedding model is shared between tests through NUGGET_MODELS, as it is between brains. What a command
    has left running in the background ends with its test.
    """
    home = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.startswith(FOREIGN):
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("NUGGET_MODELS", str(REPOSITORY / ".models"))
    monkeypatch.setenv("KF_RULE_CACHE_DIR", str(REPOSITORY / ".models" / "rules"))  # compiled once, not once a home
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setenv("NUGGET_RESIDENT_S", "3")  # no server outlives its test for long
    (home / ".gitconfig").write_text(
        "[user]\n\tname = Test Person\n\temail = test@example.invalid\n[init]\n\tdefaultBranch = main\n"
    )
    yield home
    if "nugget.infra.files" in sys.modules:
        started = sys.modules["nugget.infra.files"].STARTED
        for process in started:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
        started.clear()


@pytest.fixture
def home(isolated_home: Path) -> Path:
    """The NUGGET_HOME of a test; it is not made."""
    return isolated_home / ".nugget"


@pytest.fixture
def queue_lock(home: Path) -> Iterator[None]:
    """The lock of the worker is held, so that a hook starts none and what it queues stays where it is."""
    from nugget.infra import files

    with files.locked(home / "queue/worker.lock"):
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real transcripts, payloads and evaluation sets beside the checkout."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"{SHARED_DATA} is absent: this test reads real transcripts and data sets from there")
    return SHARED_DATA


@pytest.fixture(scope="session")
def knowledge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository with the 40-odd knowledge units of tests/brain, to be copied."""
    folder = tmp_path_factory.mktemp("knowledge") / "brain"
    shutil.copytree(REPOSITORY / "tests" / "brain", folder)
    identity = ["-c", "user.name=Test Person", "-c", "user.email=test@example.invalid"]
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], [*identity, "commit", "-q", "-m", "Knowledge"]):
        subprocess.run(["git", "-C", str(folder), *command], check=True)
    return folder


@pytest.fixture
def brain(knowledge: Path, tmp_path: Path) -> Path:
    """A copy of the knowledge of tests/brain."""
    return Path(shutil.copytree(knowledge, tmp_path / "brain"))


@pytest.fixture(scope="session")
def indexed(knowledge: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `.nugget` of such a brain, with its index."""
    from nugget.config import Settings, read_environment
    from nugget.index.embedded.sync import sync
    from nugget.infra.embedding import open_embedder

    folder = Path(shutil.copytree(knowledge, tmp_path_factory.mktemp("indexed") / "brain"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUGGET_MODELS", str(REPOSITORY / ".models"))
        patch.setenv("HOME", str(folder.parent))
        sync(folder, read_environment(), embedder=open_embedder(Settings(), read_environment()))
    return folder / ".nugget"


@pytest.fixture(scope="module")
def model() -> Embedder:
    """The bundled embedding model."""
    from nugget.config import Settings, read_environment
    from nugget.infra.embedding import open_embedder

    found = open_embedder(Settings(), read_environment())
    assert found is not None
    return found


@pytest.fixture
def synced(brain: Path, indexed: Path, model: Embedder) -> Callable[..., SyncResult]:
    """The brain is indexed; a call syncs it again."""
    from nugget.config import read_environment
    from nugget.index.embedded.sync import sync

    def run(**options: bool) -> SyncResult:
        return sync(brain, read_environment(), embedder=model, **options)

    shutil.copytree(indexed, brain / ".nugget")
    run()
    return run


@pytest.fixture
def words(brain: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The brain, searched by words alone, which is quick to index; it is in use."""
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    monkeypatch.setenv("NUGGET_BRAIN", str(brain))
    return brain


@pytest.fixture
def nugget(capsys: pytest.CaptureFixture[str]) -> Nugget:
    """Runs a command line through `nugget.cli.run`, the border that the console entry calls too."""
    from nugget.cli import run

    def call(*arguments: str | Path) -> Result:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        return Result(code, shown.out, shown.err)

    return call


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """`nugget` as an executable of the code under test."""
    start = "import sys; from nugget.__main__ import console; sys.argv[0] = '$0'; console()"
    return program(tmp_path / "bin" / "nugget", f'PYTHONPATH={REPOSITORY} exec {sys.executable} -c "{start}" "$@"')


@pytest.fixture
def server() -> Iterator[AnthropicServer]:
    """A scripted Anthropic API on loopback."""
    from loopback_anthropic import AnthropicServer

    with AnthropicServer() as running:
        yield running


@pytest.fixture
def environment(server: AnthropicServer, tmp_path: Path) -> Environment:
    """An environment with a key for `server`."""
    from nugget.config import read_environment

    return read_environment(
        {"HOME": str(tmp_path), "ANTHROPIC_API_KEY": "sk-ant-test", "ANTHROPIC_BASE_URL": server.url}
    )


@pytest.fixture
def llm(environment: Environment) -> LLM:
    """The LLM behind `server`."""
    from nugget.config import Settings
    from nugget.infra.llm import open_llm

    opened = open_llm(Settings(), environment)
    assert opened is not None
    return opened


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    """Shell logs and an index of them."""
    from logs import logs_in

    with logs_in(tmp_path) as made:
        yield made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures of the fault laboratory: what was tried, and what survived."""
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, ())]
    for figures in (value for report in reports for name, value in report.user_properties if name == "faults"):
        terminalreporter.write_line(str(figures))
