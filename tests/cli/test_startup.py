"""What starting costs: nothing heavy is imported until something needs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import REPOSITORY

HEAVY = (
    "anthropic", "apsw", "fastembed", "github", "httpx", "httpx2", "huggingface_hub", "kingfisher_sdk", "mcp",
    "numpy", "onnxruntime", "pydantic", "starlette", "tokenizers", "uvicorn",
)  # fmt: skip

REPORT = "import sys, json; print('\\n' + json.dumps(sorted(sys.modules)), file=sys.stderr)"


def modules_after(program: str, *arguments: str) -> set[str]:
    """The top-level modules that a Python process has imported when `program` is done."""
    code = f"import atexit\natexit.register(lambda: exec({REPORT!r}))\n{program}"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return {name.split(".")[0] for name in eval(done.stderr.splitlines()[-1])}


RUN_NUGGET = "import sys; from nugget.__main__ import main; sys.argv[0] = 'nugget'; main()"


@pytest.mark.proves("HOUSE-STARTUP")
def test_importing_nugget_imports_nothing_heavy_and_no_command_line() -> None:
    modules = modules_after("import nugget")
    assert modules & {*HEAVY, "git", "typer", "rich", "yaml", "markdown_it", "sqlite3"} == set()


@pytest.mark.proves("HOUSE-STARTUP")
def test_a_search_without_vectors_imports_nothing_heavy(brain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUGGET_BRAIN", str(brain))
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    modules_after(RUN_NUGGET, "sync")
    modules = modules_after(RUN_NUGGET, "search", "cache invalidation")
    assert modules & {*HEAVY, "markdown_it"} == {"pydantic"}  # which checks the settings


@pytest.mark.proves("HOUSE-STARTUP")
def test_the_hook_imports_no_installed_package() -> None:
    modules = modules_after("import nugget.hooks")
    installed = {name for name in modules if name in {*HEAVY, "typer", "rich", "yaml", "markdown_it", "pydantic"}}
    assert installed == set()
    assert modules & {"sqlite3", "json", "dataclasses", "pathlib"} <= {"json"}, "each costs milliseconds"
