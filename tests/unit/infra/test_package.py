"""What pip is told to install: pinned to where Nugget came from, or to what the person set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nugget.config import requirement


@pytest.mark.proves("HOUSE-EXTRA")
@pytest.mark.parametrize(
    ("origin", "pinned"),
    [
        ('{"url": "https://git.test/nugget", "vcs_info": {"vcs": "git", "commit_id": "4f1c"}}',
         " @ git+https://git.test/nugget@4f1c"),
        ('{"url": "file:///src/nugget", "dir_info": {}}', " @ file:///src/nugget"),
        (None, "==0.9"),
    ],
)  # fmt: skip
def test_a_requirement_is_pinned_to_where_nugget_came_from(
    origin: str | None, pinned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "nugget_brain-0.9.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.4\nName: nugget-brain\nVersion: 0.9\n")
    (metadata / "entry_points.txt").write_text("[console_scripts]\nnugget = nugget.__main__:console\n")
    if origin:
        (metadata / "direct_url.json").write_text(origin)
    monkeypatch.syspath_prepend(tmp_path)
    assert requirement("large") == "nugget-brain[large]" + pinned


@pytest.mark.proves("HOUSE-EXTRA")
@pytest.mark.parametrize(
    "use", ["FastembedEmbedder('m', cache=p)._model(download=False)", "CrossEncoder('m', cache=p)._loaded"]
)
def test_a_missing_extra_is_named_with_its_command(use: str) -> None:
    program = (
        "import sys; from pathlib import Path; p = Path('.'); sys.modules['fastembed'] = None\n"
        "from nugget.errors import EmbeddingUnavailable\n"
        "from nugget.infra.embedding.other_models import *\n"
        f"try: {use}\nexcept EmbeddingUnavailable as error: print(error, error.hint)"
    )
    environment = {**os.environ, "NUGGET_PACKAGE": "nugget-brain @ git+https://git.test/nugget@v1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert (
        "needs the extra `large`. Install it: pip install 'nugget-brain[large] @ git+https://git.test/nugget@v1'"
        in done.stdout
    ), done.stderr
