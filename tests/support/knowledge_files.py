"""Files of a brain as a person writes and commits them, and proposals as they are accepted."""

import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from paths import REPOSITORY

from nugget.brain import knowledge_file as knowledge
from nugget.capture.review import Decided, Decision, decide
from nugget.models import Unit


def write(brain: Path, path: str, text: str) -> None:
    """Write one file, with its folders."""
    (brain / path).parent.mkdir(parents=True, exist_ok=True)
    (brain / path).write_text(text, "utf-8")


IDENTITY = ("-c", "user.name=Test", "-c", "user.email=test@example.invalid")


def shell(repo: Path, *args: str) -> str:
    """Run git in a repository; return what it prints."""
    return subprocess.run(["git", "-C", str(repo), *args], check=True, capture_output=True, text=True).stdout


def commit(repo: Path, paths: Iterable[str], message: str) -> str:
    """Commit exactly these paths; the new commit."""
    shell(repo, "--literal-pathspecs", "add", "--force", "--", *paths)
    shell(repo, *IDENTITY, "--literal-pathspecs", "commit", "-qm", message, "--only", "--", *paths)
    return shell(repo, "rev-parse", "HEAD").strip()


def linked_brain(folder: Path) -> Path:
    """Make a small brain of linked units, with unrelated work under way."""
    from nugget.brain import init_brain

    brain = init_brain(folder, owner="Ada", now=datetime(2026, 3, 1, 12, 0, tzinfo=UTC))[0]
    for slug, related in (("keys", ""), ("retry", "concept/keys"), ("queue", "concept/keys")):
        kind = "concept" if slug == "keys" else "pattern"
        edge = f"related:\n  - id: {related}  # because\n    relation: uses\n" if related else ""
        text = f"---\nid: {kind}/{slug}\ntype: {kind}\ndomain: coding\n{edge}---\n# {slug}\n\nAbout {slug}.\n"
        write(brain, f"domains/coding/{kind}s/{slug}.md", text)
    commit(brain, ["domains"], "Linked")
    write(brain, "README.md", "changed, not staged")
    write(brain, "staged.txt", "staged")
    shell(brain, "add", "staged.txt")
    return brain


def add_first_units(brain: Path) -> Path:
    """File one unit of each type under `coding`, commit them and return the brain."""
    for example in (REPOSITORY / "brain-template" / "examples").glob("*.md"):
        text = example.read_text("utf-8")
        unit_type = text.partition("\ntype: ")[2].partition("\n")[0]
        write(brain, f"domains/coding/{unit_type}s/{example.name}", text.replace("2026-02-24", "2026-03-01"))
    commit(brain, ["domains"], "First units")
    return brain


KNOWN_PATH = "domains/coding/patterns/retry-with-idempotency.md"


def known_unit(brain: Path) -> Unit:
    """The unit that the test brain holds at KNOWN_PATH."""
    found = knowledge.parse((brain / KNOWN_PATH).read_text("utf-8"), path=KNOWN_PATH).unit
    assert found is not None
    return found


def accept(brain: Path, name: str | None = None, *, now: datetime) -> Decided:
    """Accept a proposal."""
    return decide(brain, name, Decision(accept=None), home=brain, now=now)


def snapshot(*folders: Path) -> dict[str, bytes | None]:
    """Every file and folder with its content; SQLite's shared memory is no content."""
    paths = (path for folder in folders for path in folder.rglob("*") if not path.name.endswith(("-shm", "-wal")))
    return {str(path): path.read_bytes() if path.is_file() else None for path in paths}
