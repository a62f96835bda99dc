"""`nugget context` as a whole process, start to exit, among 10,000 nuggets: at most 400 ms for a path.

Run: `python benchmarks/provenance_context.py [NUGGETS]`. Makes a repository of 1,200 files and a store of sessions in a
temporary HOME, indexes it once, then measures each question as ratios to the limit and to `nugget --version`.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
START = "import sys; from nugget.__main__ import console; sys.argv[0] = 'nugget'; console()"
LIMIT_MS = 400
ROUNDS = 12
PER_SESSION = 20
WORDS = "auth token login cache redis session schema migration retry webhook payment queue worker index vector".split()


def main() -> None:
    """Make the store, index it, ask."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    sys.path.insert(0, str(REPOSITORY))
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        repo = _make_repository(home / "shop")
        _fill_store(home / ".nugget", repo, count)
        environment = {
            **os.environ, "HOME": folder, "NUGGET_HOME": str(home / ".nugget"), "PYTHONPATH": str(REPOSITORY),
            "NUGGET_EMBEDDING_MODEL": "none",
        }  # fmt: skip
        started = time.perf_counter()
        _run(["context", "src/mod3/file4.py"], repo, environment)
        print(f"{count:,} nuggets, first question (indexes all of them): {time.perf_counter() - started:.1f} s\n")
        (repo / "src/mod3/file7.py").rename(repo / "src/mod3/moved.py")
        ways = {
            "nugget --version": ["--version"],
            "context PATH": ["context", "src/mod3/file4.py"],
            "context FOLDER": ["context", "src/mod3"],
            "context . (everything)": ["context", "."],
            "context PATH --query": ["context", "src/mod3/file4.py", "--query", "why is the session cached in redis"],
            "context --query": ["context", "--query", "why is the session cached in redis"],
            "context PATH --symbol": ["context", "src/mod3/file4.py", "--symbol", "load"],
            "nuggets --file": ["nuggets", "--file", "src/mod3/file4.py"],
        }
        print(f"{'command':26} {'wall ms':>8} {'/ limit':>8} {'cpu ms':>8} {'/ limit':>8}   (least of {ROUNDS})")
        for name, arguments in ways.items():
            measured = [_run(arguments, repo, environment) for _ in range(ROUNDS)]
            wall, cpu = (min(one[part] for one in measured) for part in (0, 1))
            print(f"{name:26} {wall:8.0f} {wall / LIMIT_MS:8.2f} {cpu:8.0f} {cpu / LIMIT_MS:8.2f}")


def _run(arguments: list[str], repo: Path, environment: dict[str, str]) -> tuple[float, float]:
    """Return the elapsed and processor milliseconds of a command, children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", START, *arguments], cwd=repo, env=environment, capture_output=True)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr.decode()
    return wall * 1000, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def _make_repository(repo: Path) -> Path:
    for module in range(40):
        folder = repo / "src" / f"mod{module}"
        folder.mkdir(parents=True)
        for number in range(30):
            (folder / f"file{number}.py").write_text(f"def load():\n    return {module * number}\n")
    who = ("-c", "user.name=Bench", "-c", "user.email=bench@example.invalid")
    for command in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "Code"]):
        subprocess.run(["git", "-C", str(repo), *command], check=True)
    return repo


def _fill_store(home: Path, repo: Path, count: int) -> None:
    from nugget.infra.workspace import find_workspace
    from nugget.models import Scope
    from nugget.models.nuggets import FileTouch, Nugget, NuggetType, SessionRecord, TouchAction
    from nugget.sources.nugget_store import line_of, session_file

    workspace = find_workspace(repo)
    assert workspace is not None
    rng = random.Random(7)
    for number in range(count // PER_SESSION):
        session = f"{number:08x}-0000-4000-8000-000000000000"
        started = datetime.now(UTC) - timedelta(hours=number)
        record = SessionRecord(
            session=session, workspace=workspace.identity, title=f"Session {number}", started=started, records=10
        )
        written = [line_of(record)]
        for position in range(PER_SESSION):
            path = None if rng.random() < 0.2 else f"src/mod{rng.randrange(40)}/file{rng.randrange(30)}.py"
            nugget = Nugget(
                id=f"{number:08x}-{position + 1}", type=rng.choice(list(NuggetType)), confidence=0.6, session=session,
                summary="we " + " ".join(rng.sample(WORDS, 7)), detail=" ".join(rng.choices(WORDS, k=25)),
                scope=Scope(repo=workspace.identity, path=path), session_started=started, extracted_at=started,
                source_prompt=" ".join(rng.choices(WORDS, k=20)), file_hash="0" * 64 if path else None,
            )  # fmt: skip
            written.append(line_of(nugget))
            if path:
                written.append(line_of(FileTouch(path=path, action=TouchAction.MODIFIED, at=started)))
        file = session_file(home, workspace.identity, session)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(line) + "\n" for line in written), "utf-8")


if __name__ == "__main__":
    main()
