"""What pip is told to install: pinned to where Nugget came from, or to what the person set."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


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
