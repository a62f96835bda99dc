"""What tests of the command line share.

Most commands run in this process through `nugget.cli.run`, the border that the console entry calls. The golden
transcripts are in tests/golden/cli; `UPDATE_GOLDEN=1 pytest tests/cli` rewrites them.
"""

import os
import re
from pathlib import Path

from paths import TESTS

GOLDEN = TESTS / "golden" / "cli"


def golden(name: str, shown: str, *places: Path) -> None:
    """Compare with the transcript of that name; dates, hashes and folders do not count."""
    for number, place in enumerate(places, 1):
        shown = shown.replace(str(place), f"<folder {number}>")
    shown = re.sub(r"\b[0-9a-f]{10}\b", "<commit>", shown)
    shown = re.sub(r"\b20\d\d-\d\d-\d\d\b", "<date>", shown)
    shown = re.sub(r"\d+\.\d ms", "<time>", shown)
    is_golden(GOLDEN / f"{name}.txt", re.sub(r"\b0\.\d{3}\b", "<number>", shown))


def is_golden(file: Path, shown: str) -> None:
    """Compare with a transcript, or write it anew."""
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(shown, "utf-8")
    assert shown == file.read_text("utf-8")


def write_unit(brain: Path, unit_id: str, body: str, **keys: str) -> Path:
    """Write a knowledge file straight into the brain, as an editor does."""
    kind, _, slug = unit_id.partition("/")
    file = brain / "domains" / "coding" / f"{kind}s" / f"{slug}.md"
    known = {"id": unit_id, "type": kind, "domain": "coding", **keys}
    lines = "".join(f"{key}: {said}\n" for key, said in known.items())
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"---\n{lines}---\n{body}\n", "utf-8")
    return file
