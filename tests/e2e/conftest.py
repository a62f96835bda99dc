"""What the end-to-end tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from publishing_stage import Place, laid_out


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A trusted brain whose origin is the loopback GitHub."""
    with laid_out(tmp_path, monkeypatch) as ready:
        yield ready
