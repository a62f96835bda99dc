"""What tests of the pages share."""

from __future__ import annotations

from pathlib import Path

import pytest
from web_stage import harbour_notes

from nugget.app import open


@pytest.fixture
def proposed(words: Path, tmp_path: Path) -> Path:
    """A brain with a proposal of 23 units."""
    with open(words) as brain:
        brain.import_notes(harbour_notes(tmp_path / "notes"), domain="harbour")
    return words
