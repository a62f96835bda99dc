"""The wheel, as a user installs it: built, put into a clean environment without dev dependencies, and used there.

Installing needs the package index, and the configuration of pip that belongs to the real HOME; so the fixture runs
before a test's own HOME is set, once for all tests here.
"""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from paths import REPOSITORY

from nugget.infra import git

SHARED = (
    "man/man1/nugget.1", "bash-completion/completions/nugget", "zsh/site-functions/_nugget",
    "fish/vendor_completions.d/nugget.fish",
)  # fmt: skip


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(REPOSITORY)],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of a new environment that has the wheel and what it requires, and nothing else."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder)
    pip(folder / "bin", "install", "--quiet", "--no-compile", str(wheel))
    return folder / "bin"


def pip(programs: Path, *arguments: str) -> str:
    """What our pip prints on what the clean environment holds."""
    command = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "--disable-pip-version-check"]
    return subprocess.run([*command, *arguments], check=True, capture_output=True, text=True, timeout=600).stdout


def run(program: Path, *arguments: str, cwd: Path) -> str:
    """What a program of the clean environment prints, run without anything of the checkout in reach."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run([program, *arguments], cwd=cwd, env=variables, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, f"{program.name} {' '.join(arguments)}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.proves("HOUSE-WHEEL")
def test_the_wheel_carries_everything_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for carried in ("brain-template/.gitignore", "brain-template/.github/workflows/lint.yml", "hooks/session-end",
                    "plugin/.claude-plugin/plugin.json", "plugin/.mcp.json"):  # fmt: skip
        assert f"nugget/_bundled/{carried}" in names
    tracked = git.run(REPOSITORY, "ls-files", "nugget").decode().split()
    assert set(tracked) - names == set(), "tracked, but not in the wheel"
    version = "-".join(wheel.name.split("-")[:2])
    shared = {f"{version}.data/data/share/{place}" for place in SHARED}
    assert {name for name in names if name.split("/")[0] not in ("nugget", f"{version}.dist-info")} == shared
    assert not [name for name in names if "/.nugget/" in name or name.endswith((".db", ".pyc"))]


@pytest.mark.proves("HOUSE-WHEEL")
def test_init_add_and_ask_work_where_only_the_wheel_is_installed(installed, isolated_home, monkeypatch):
    monkeypatch.delenv("NUGGET_MODELS")
    present = pip(installed, "list").lower()
    assert not [name for name in ("pytest", "hypothesis", "mypy", "ruff", "apsw", "pysqlite3") if name in present]
    pip(installed, "check")
    nugget = installed / "nugget"
    assert run(nugget, "--version", cwd=isolated_home).startswith("nugget ")
    run(nugget, "init", str(isolated_home / "brain"), cwd=isolated_home)
    note = "Sourdough rises slowly in a cold kitchen; give it twice the time below 18 degrees."
    run(nugget, "add", note, "--type", "pattern", "--domain", "cooking", cwd=isolated_home)
    answer = run(nugget, "ask", "why does my bread take so long in winter", "--limit", "1", cwd=isolated_home)
    assert "twice the time" in answer
    assert "embedding" not in answer.lower(), "the bundled model was used"


@pytest.mark.proves("HOUSE-WHEEL", "HOUSE-SELF-CHECK", "HOUSE-MANUAL")
def test_the_wheel_checks_itself_and_brings_its_manual(installed, isolated_home):
    assert run(installed / "nugget", "self-check", cwd=isolated_home).endswith("It works.\n")
    for place in SHARED:
        assert "nugget" in (installed.parent / "share" / place).read_text("utf-8").lower()
    files = (file for file in installed.parent.rglob("*") if not file.is_symlink())
    assert sum(file.stat().st_size for file in files) / 1e6 <= 400


@pytest.mark.proves("HOUSE-WHEEL", "HOUSE-DEMO")
def test_the_demo_plays_where_only_the_wheel_is_installed(installed, isolated_home):
    shown = run(installed / "python", str(REPOSITORY / "examples/demo"), cwd=isolated_home)
    for step in ("Make a brain", "Capture a session", "Review", "Ask", "What the next agent gets", "Now with your own"):
        assert step in shown
    asked, later = shown.split("What the next agent gets")
    over_mcp, code = later.split("6. What failed, and what fixed it")
    code, in_a_team = code.split("9. In a team")
    assert "pytest" in code and "payments/webhooks.py" in code and "$ nugget commit" in code
    assert "pull request #1 on the stand-in for GitHub" in in_a_team and "branch  nugget/session-" in in_a_team
    for answer in (asked.split("$ nugget ask")[1], over_mcp, in_a_team.split("$ nugget ask")[1]):
        first = answer.split("1. ")[1].split("2. ")[0]  # and not a nugget, which repeats the prompt
        assert "over the raw body" in first or "instead of the bytes that were sent" in first
    assert not list(isolated_home.glob(".nugget")), "nothing of the person's HOME was touched"
