"""Measure how fast knowledge files are read, parsed and chunked, against the libraries that do the parsing.

Run: python benchmarks/chunking.py [FILES]
The floor is what markdown-it-py and PyYAML alone take for the same texts: block tokens of the body, frontmatter loaded.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml
from corpus import write_brain
from markdown_it import MarkdownIt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nugget.brain import knowledge_paths, read_file
from nugget.brain.frontmatter import split
from nugget.brain.knowledge_file import parse_bytes
from nugget.markdown import chunk_markdown
from nugget.models import Unit

ROUNDS = 5
TEN_PAGES_BYTES = 25_000


def main() -> None:
    """Print a table for files of three kinds."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        _measure("2 KB files", write_brain(here / "small", count, commit=False))
        large = write_brain(here / "large", max(1, count // 20), bytes_each=TEN_PAGES_BYTES, commit=False)
        _measure("10-page files", large)
        _measure("the brain of the tests", Path(__file__).resolve().parent.parent / "tests" / "brain")


def _measure(name: str, brain: Path) -> None:
    paths = list(knowledge_paths(brain))
    contents = [(brain / path).read_bytes() for path in paths]
    parts = [split(content.decode()) for content in contents]
    units = [unit for unit in (_unit(content, path) for content, path in zip(contents, paths, strict=True)) if unit]
    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    rows = {
        "open and read": _seconds(lambda: [(brain / path).read_bytes() for path in paths]),
        "read_file (contained)": _seconds(lambda: [read_file(brain, path) for path in paths]),
        "PyYAML load": _seconds(lambda: [yaml.load(part.frontmatter, Loader=loader) for part in parts]),
        "parse_bytes": _seconds(lambda: [_unit(*pair) for pair in zip(contents, paths, strict=True)]),
        "markdown-it block tokens": _seconds(lambda: [parser.parse(part.body) for part in parts]),
        "chunk_markdown": _seconds(lambda: [chunk_markdown(unit.body, title=unit.title) for unit in units]),
    }
    floor = rows["PyYAML load"] + rows["markdown-it block tokens"]
    whole = rows["read_file (contained)"] + rows["parse_bytes"] + rows["chunk_markdown"]
    chunks = sum(len(chunk_markdown(unit.body, title=unit.title)) for unit in units)
    size = sum(map(len, contents)) / len(contents)
    print(f"\n{name}: {len(paths)} files of {size:,.0f} bytes, {chunks} chunks")
    for row, seconds in {**rows, "floor (both libraries alone)": floor, "read, parse, chunk": whole}.items():
        each, rate = seconds / len(paths) * 1e3, len(paths) / seconds
        print(f"  {row:30} {each:8.3f} ms/file {rate:9,.0f} files/s {seconds / floor:6.2f} x floor")


def _unit(content: bytes, path: str) -> Unit | None:
    return parse_bytes(content, path=path).unit


def _seconds(work: Callable[[], object]) -> float:
    """Return the least processor time of several rounds."""
    times = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


if __name__ == "__main__":
    main()
