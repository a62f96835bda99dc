"""Measure a proposal of five files on a new branch, written without checkout or index, against other ways.

Run: `python benchmarks/git_calls.py`. Prints a table for brains of 1,000 and 10,000 files; ratios to one `git status`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nugget.infra import git

ROUNDS = 9
NOW = datetime(2026, 3, 1, tzinfo=UTC)
FILES = {f"domains/coding/patterns/new-{number}.md": b"# New\n\nText.\n" * 20 for number in range(5)}


def main() -> None:
    """Measure in repositories of two sizes."""
    print(f"{'files':>7} {'way':38} {'median ms':>10} {'x status':>9}")
    for count in (1_000, 10_000):
        with tempfile.TemporaryDirectory() as folder:
            repo = _repository(Path(folder) / "brain", count)
            ways: dict[str, Callable[[int], object]] = {
                "git status": lambda number, repo=repo: git.run(repo, "status", "--porcelain"),  # type: ignore[misc]
                "git.uncommitted_paths": lambda number, repo=repo: git.uncommitted_paths(repo),  # type: ignore[misc]
                "git.create_branch (fast-import)": lambda number, repo=repo: git.create_branch(  # type: ignore[misc]
                    repo, f"nugget/session-{number}", files=FILES, message="m\n", now=NOW
                ),
                "git.unmerged_files (all proposals)": lambda number, repo=repo: git.unmerged_files(repo, "nugget/"),  # type: ignore[misc]
                "git worktree add, write, commit": lambda number, repo=repo: _by_worktree(repo, number),  # type: ignore[misc]
            }
            medians = {name: _median(way) for name, way in ways.items()}
            for name, taken in medians.items():
                print(f"{count:7,} {name:38} {taken:10.1f} {taken / medians['git status']:9.2f}")


def _repository(repo: Path, count: int) -> Path:
    repo.mkdir()
    git.init(repo)
    files = {f"domains/coding/d{n % 100}/patterns/unit-{n}.md": b"# Unit %d\n\nText.\n" % n for n in range(count)}
    git.create_branch(repo, "main", files=files, message="First\n", now=NOW, base=None)
    git.run(repo, "reset", "--hard", "--quiet", "main")
    return repo


def _by_worktree(repo: Path, number: int) -> None:
    place = repo.parent / f"worktree-{number}"
    git.run(repo, "worktree", "add", "--quiet", "-b", f"other/session-{number}", str(place))
    for path, content in FILES.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(content)
    subprocess.run(["git", "-C", str(place), "add", "-A"], check=True)
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.invalid"]
    subprocess.run(["git", *identity, "-C", str(place), "commit", "-q", "-m", "m"], check=True)
    git.run(repo, "worktree", "remove", "--force", str(place))
    shutil.rmtree(place, ignore_errors=True)


def _median(way: Callable[[int], object]) -> float:
    taken = []
    for number in range(ROUNDS):
        started = time.perf_counter()
        way(number)
        taken.append((time.perf_counter() - started) * 1000)
    return sorted(taken)[len(taken) // 2]


if __name__ == "__main__":
    main()
