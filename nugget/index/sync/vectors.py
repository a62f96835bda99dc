"""Where the vectors of a sync come from: the cache first, the model for the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nugget.errors import EmbeddingUnavailable
from nugget.index.vector_cache import VectorCache, text_hash
from nugget.infra.embedding import Embedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(slots=True)
class Vectors:
    """Where the vectors of one sync come from, and what has been spent on them so far.

    `size` is that of a vector in bytes, where the index has some. An endpoint may come to answer with others:
    `is_outgrown` then says that those of the index compare with nothing any more.
    """

    embedder: Embedder | None
    cache: VectorCache | None
    size: int | None = None
    embedded: int = 0
    cached: int = 0
    used: set[bytes] = field(default_factory=set)
    unavailable: str | None = None
    is_outgrown: bool = False

    def of(self, texts: Sequence[Sequence[str]]) -> Iterator[list[NDArray[np.float32]]]:
        """The vectors of each list of texts (none where not all can be had), as soon as they are ready."""
        if self.embedder is None or self.cache is None or self.unavailable:
            yield from ([] for _ in texts)
            return
        hashes = [[text_hash(text) for text in its_texts] for its_texts in texts]
        wanted = {key: text for pairs in map(zip, hashes, texts) for key, text in pairs}
        ready = {key: vector for key, vector in self.cache.get(list(wanted)).items() if self._fits(vector)}
        fresh: dict[bytes, NDArray[np.float32]] = {}
        missing = [key for key in wanted if key not in ready]
        made = self.embedder.embed([wanted[key] for key in missing])
        coming = iter(missing)
        for keys in hashes:
            try:
                while not self.unavailable and any(key not in ready for key in keys):
                    key = next(coming)
                    vector = next(made)
                    if not self._fits(vector):
                        self.is_outgrown = True
                        self.cache.clear()
                        raise EmbeddingUnavailable(
                            f"{self.embedder.model} makes vectors of {len(vector)} numbers now, which do not compare "
                            "with those of the index; `nugget rebuild` makes all anew."
                        )
                    ready[key] = fresh[key] = vector
            except EmbeddingUnavailable as error:
                self.unavailable = str(error)
            complete = all(key in ready for key in keys)
            yield [ready[key] for key in keys] if complete else []
        self.cache.put(fresh)
        self.used.update(wanted)
        self.embedded += len(fresh)
        self.cached += len(wanted) - len(missing)

    def _fits(self, vector: NDArray[np.float32]) -> bool:
        """Whether a vector has the size of all others; the first one decides where there are none."""
        self.size = self.size or vector.nbytes
        return vector.nbytes == self.size
