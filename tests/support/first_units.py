"""The examples of the template as the first knowledge of a brain, for tests that need some."""

from __future__ import annotations

from pathlib import Path

from knowledge_files import commit
from paths import REPOSITORY


def add_first_units(brain: Path) -> Path:
    """File one unit of each type under `coding`, commit them and return the brain."""
    for example in (REPOSITORY / "brain-template" / "examples").glob("*.md"):
        text = example.read_text("utf-8")
        unit_type = text.partition("\ntype: ")[2].partition("\n")[0]
        file = brain / "domains" / "coding" / f"{unit_type}s" / example.name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("2026-02-24", "2026-03-01"), "utf-8")
    commit(brain, ["domains"], "First units")
    return brain
