"""Reading and chunking a brain's files ahead of the one who writes them into the index.

While there are vectors to make, a thread prepares one batch ahead of the model. Where every vector is cached,
preparing is most of the work, and a large rebuild has a second process do it: threads would take turns.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from subprocess import DEVNULL, PIPE

from nugget.index.writes import embedded_texts, indexed_title
from nugget.markdown import chunk_markdown
from nugget.models import Chunk
from nugget.sources import brain as brain_source
from nugget.sync.ahead import one_ahead
from nugget.sync.vectors import Vectors
from nugget.text import estimate_tokens

CountTokens = Callable[[str], int]

_FILES_A_BATCH = 128

WORTH_A_PROCESS = 300
"""Files that must remain for a second process: starting it costs as much as reading about a hundred."""

_START = "import sys; sys.path[:] = sys.argv[1:]; from nugget.sync.preparing import work; work()"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A file as it was read, with the chunks of its unit."""

    file: brain_source.ReadFile
    chunks: Sequence[Chunk]

    @property
    def texts(self) -> list[str]:
        """What is embedded for it."""
        return embedded_texts(self.file.unit, self.chunks) if self.file.unit else []


def prepared(brain: Path, paths: Sequence[str], vectors: Vectors) -> Iterator[list[Prepared]]:
    """Files read and chunked, in their order, in batches."""
    count_tokens = vectors.embedder.count_tokens if vectors.embedder else estimate_tokens
    batches = [paths[start : start + _FILES_A_BATCH] for start in range(0, len(paths), _FILES_A_BATCH)]
    for position, batch in enumerate(batches):
        if vectors.embedded:
            yield from one_ahead(_prepare_all(brain, batches[position:], count_tokens))
            return
        remaining = len(paths) - position * _FILES_A_BATCH
        if position and remaining >= WORTH_A_PROCESS:
            yield from _prepare_elsewhere(brain, batches[position:], count_tokens)
            return
        yield from _prepare_all(brain, [batch], count_tokens)


def _prepare_all(brain: Path, batches: Sequence[Sequence[str]], count_tokens: CountTokens) -> Iterator[list[Prepared]]:
    for batch in batches:
        yield [_prepare(brain, path, count_tokens) for path in batch]


def _prepare(brain: Path, path: str, count_tokens: CountTokens) -> Prepared:
    file = brain_source.read(brain, path)
    if file.unit is None:
        return Prepared(file, [])
    title = indexed_title(file.unit.title, file.unit.body)
    return Prepared(file, chunk_markdown(file.unit.body, title=title, count_tokens=count_tokens))


def _prepare_elsewhere(
    brain: Path, batches: Sequence[Sequence[str]], count_tokens: CountTokens
) -> Iterator[list[Prepared]]:
    """The same batches from a second process; from this one, as far as that fails.

    Not by multiprocessing: that imports the caller's main program again, which is not ours to run twice.
    """
    done = 0
    try:
        for batch in _from_second_process(_task(brain, batches, count_tokens)):
            done += 1
            yield batch
    except (OSError, EOFError, pickle.PickleError):
        pass
    yield from _prepare_all(brain, batches[done:], count_tokens)


def _task(brain: Path, batches: Sequence[Sequence[str]], count_tokens: CountTokens) -> bytes:
    try:
        return pickle.dumps((brain, batches, count_tokens))
    except (TypeError, AttributeError) as error:  # a model that holds what no other process can have
        raise pickle.PicklingError(str(error)) from error


def _from_second_process(task: bytes) -> Iterator[list[Prepared]]:
    """What `work` prepares for a task, until it has written all; raises EOFError where it died on the way."""
    command = [sys.executable, "-c", _START, *sys.path]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL) as process:
        assert process.stdin and process.stdout
        try:
            process.stdin.write(task)
            process.stdin.close()
            while batch := pickle.load(process.stdout):
                yield batch
        finally:
            process.kill()


def work() -> None:
    """The second process: read the task from stdin, write each prepared batch to stdout, then an empty one."""
    brain, batches, count_tokens = pickle.load(sys.stdin.buffer)
    out = sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing that is printed may stand between the batches
    for batch in chain(_prepare_all(brain, batches, count_tokens), [[]]):
        pickle.dump(batch, out, protocol=pickle.HIGHEST_PROTOCOL)
        out.flush()
