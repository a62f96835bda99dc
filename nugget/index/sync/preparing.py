"""Read and chunk a brain's files one batch ahead of the writer, so that the model does not wait for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nugget.errors import reason_of
from nugget.index.sync.ahead import one_ahead
from nugget.index.sync.vectors import Vectors
from nugget.index.writes import TextColumns, embedded_texts, indexed_title, text_columns
from nugget.markdown import chunk_markdown
from nugget.models import Chunk, Problem
from nugget.sources import brain as brain_source
from nugget.text import estimate_tokens, printable

CountTokens = Callable[[str], int]

_FILES_A_BATCH = 64


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
    """Yield files read and chunked, in their order, in batches."""
    count_tokens = vectors.embedder.count_tokens if vectors.embedder else estimate_tokens
    batches = (paths[start : start + _FILES_A_BATCH] for start in range(0, len(paths), _FILES_A_BATCH))
    return one_ahead([_prepare(brain, path, count_tokens) for path in batch] for batch in batches)


def _prepare(brain: Path, path: str, count_tokens: CountTokens) -> Prepared:
    file = brain_source.read(brain, path)
    if file.unit is None:
        return Prepared(file, [])
    title = indexed_title(file.unit.title, file.unit.body)
    try:
        chunks = chunk_markdown(file.unit.body, title=title, count_tokens=count_tokens)
        return Prepared(file, chunks, text_columns(file.unit, chunks))
    except Exception as error:
        problem = Problem(path=printable(path), reason=f"cannot be indexed ({reason_of(error)})")
        state = replace(file.state, unit_id=None, problems=(*file.state.problems, problem))
        return Prepared(replace(file, state=state, unit=None), [])
