"""Reading and chunking a brain's files ahead of the one who writes them into the index.

While there are vectors to make, a thread prepares one batch ahead of the model. Where every vector is cached,
preparing is most of the work, and a large rebuild has a second process do its share: threads would take turns.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from nugget.index.sync.ahead import one_ahead
from nugget.index.sync.vectors import Vectors
from nugget.index.writes import TextColumns, embedded_texts, indexed_title, text_columns
from nugget.markdown import chunk_markdown
from nugget.models import Chunk
from nugget.sources import brain as brain_source
from nugget.text import estimate_tokens

CountTokens = Callable[[str], int]

_FILES_A_BATCH = 64

_BATCHES_AHEAD = 6
"""How far this process looks ahead for batches of its own, rather than wait for the second one to start."""

WORTH_A_PROCESS = 300
"""Files that must remain for a second process: starting it costs as much as reading about a hundred."""

_START = "import sys; sys.path[:] = sys.argv[1:]; from nugget.index.sync.preparing import work; work()"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A file as it was read, with the chunks and the full text of its unit."""

    file: brain_source.ReadFile
    chunks: Sequence[Chunk]
    columns: TextColumns | None = None

    @property
    def texts(self) -> list[str]:
        """What is embedded for it."""
        return embedded_texts(self.file.unit, self.chunks) if self.file.unit else []


def prepared(brain: Path, paths: Sequence[str], vectors: Vectors) -> Iterator[list[Prepared]]:
    """Files read and chunked, in their order, in batches."""
    count_tokens = vectors.embedder.count_tokens if vectors.embedder else estimate_tokens
    batches = [paths[start : start + _FILES_A_BATCH] for start in range(0, len(paths), _FILES_A_BATCH)]
    made: dict[int, list[Prepared]] = {}

    def make(at: int) -> list[Prepared]:
        return made.pop(at, []) or _prepare_all(brain, batches[at], count_tokens)

    position = 0
    with _second_process(brain, batches, count_tokens, is_wanted=len(paths) >= WORTH_A_PROCESS) as process:
        while position < len(batches) and not vectors.embedded:
            for later in range(position, min(position + _BATCHES_AHEAD, len(batches)) if process else position):
                if _is_ours(later) and later not in made:
                    made[later] = make(later)
            theirs = None if _is_ours(position) else _next_from(process)
            yield theirs or make(position)
            position += 1
    yield from one_ahead(make(at) for at in range(position, len(batches)))


def _is_ours(position: int) -> bool:
    """Whether a batch is prepared here: this process has the time for half of them beside writing all."""
    return position % 2 == 0


def _prepare_all(brain: Path, paths: Sequence[str], count_tokens: CountTokens) -> list[Prepared]:
    return [_prepare(brain, path, count_tokens) for path in paths]


def _prepare(brain: Path, path: str, count_tokens: CountTokens) -> Prepared:
    file = brain_source.read(brain, path)
    if file.unit is None:
        return Prepared(file, [])
    title = indexed_title(file.unit.title, file.unit.body)
    chunks = chunk_markdown(file.unit.body, title=title, count_tokens=count_tokens)
    return Prepared(file, chunks, text_columns(file.unit, chunks))


@contextmanager
def _second_process(
    brain: Path, batches: Sequence[Sequence[str]], count_tokens: CountTokens, *, is_wanted: bool
) -> Iterator[subprocess.Popen[bytes] | None]:
    """A process that prepares what is not ours; None where it is not wanted, or cannot be had.

    Not by multiprocessing: that imports the caller's main program again, which is not ours to run twice.
    """
    process = None
    if is_wanted:
        theirs = [batch for position, batch in enumerate(batches) if not _is_ours(position)]
        with suppress(OSError, pickle.PickleError, TypeError, AttributeError):  # a model that cannot be pickled
            process = _start(pickle.dumps((brain, theirs, count_tokens)))
    try:
        yield process
    finally:
        if process is not None:
            process.kill()
            process.communicate()


def _start(task: bytes) -> subprocess.Popen[bytes]:
    with TemporaryFile() as file:  # a pipe would have us wait until the other process is there to read
        file.write(task)
        file.seek(0)
        command = [sys.executable, "-c", _START, *sys.path]
        return subprocess.Popen(command, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def _next_from(process: subprocess.Popen[bytes] | None) -> list[Prepared] | None:
    """The next batch that the process prepared; None where it died."""
    if process is None or process.stdout is None:
        return None
    try:
        batch: list[Prepared] = pickle.load(process.stdout)
    except (OSError, EOFError, pickle.PickleError):
        return None
    return batch


def work() -> None:
    """The second process: read the task from stdin, write each prepared batch to stdout."""
    brain, batches, count_tokens = pickle.load(sys.stdin.buffer)
    out = sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing that is printed may stand between the batches
    for batch in batches:
        pickle.dump(_prepare_all(brain, batch, count_tokens), out, protocol=pickle.HIGHEST_PROTOCOL)
        out.flush()
