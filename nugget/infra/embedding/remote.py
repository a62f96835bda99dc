"""Embeddings over HTTP: the OpenAI and Voyage request formats, at any base URL.

Texts are redacted before they leave the machine. Formats: platform.openai.com/docs/api-reference/embeddings and
docs.voyageai.com/reference/embeddings-api.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from nugget.config import EmbeddingSettings, Environment
from nugget.errors import EmbeddingUnavailable
from nugget.redaction import redact
from nugget.text import estimate_tokens, shorten

if TYPE_CHECKING:
    import httpx
    import numpy as np
    from numpy.typing import NDArray

_DEFAULTS = {
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "voyage": ("https://api.voyageai.com/v1", "VOYAGE_API_KEY"),
}
_BATCH = 64
_ATTEMPTS = 4
_RETRIED = (408, 409, 429, 500, 502, 503, 504, 529)
_LONGEST_WAIT_S = 20.0
_MAX_REPLY_BYTES = 64_000_000
_LARGEST_NUMBER = 1e12
"""No model gives numbers beyond this; their squares add up within a float."""


class HttpEmbedder:
    """An embedding endpoint. `model` carries vendor and base URL (no credentials), so that two never share vectors."""

    def __init__(self, vendor: str, name: str, *, base_url: str, key: str, timeout_s: float) -> None:
        self.model = f"{vendor}:{name}@{_without_credentials(base_url)}"
        self._vendor = vendor
        self._name = name
        self._url = base_url.rstrip("/") + "/embeddings"
        self._shown_url = _without_credentials(self._url)
        self._headers = {"Authorization": f"Bearer {key}"}
        self._timeout_s = timeout_s
        self._size: int | None = None

    @classmethod
    def from_settings(cls, settings: EmbeddingSettings, environment: Environment) -> HttpEmbedder:
        """Read `openai:<model>` or `voyage:<model>`. Raises EmbeddingUnavailable when the key is not set."""
        vendor, _, name = settings.model.partition(":")
        base_url, variable = _DEFAULTS[vendor]
        variable = settings.api_key_env or variable
        key = environment.variables.get(variable)
        if not key:
            raise EmbeddingUnavailable(
                f"`embedding.model: {settings.model}` needs a key, and {variable} is not set.",
                hint=f"Set {variable}, or use the bundled model: `embedding: {{model: all-MiniLM-L6-v2}}`.",
            )
        if not key.isascii() or not key.isprintable():
            raise EmbeddingUnavailable(f"{variable} holds characters that no key has.", hint="Copy the key again.")
        return cls(vendor, name, base_url=settings.base_url or base_url, key=key, timeout_s=settings.timeout_s)

    def embed(self, texts: Sequence[str]) -> Iterator[NDArray[np.float32]]:
        """One vector of shape (dimensions,) for each text, in order."""
        import httpx

        with httpx.Client(timeout=self._timeout_s, headers=self._headers) as client:
            for start in range(0, len(texts), _BATCH):
                yield from self._request(client, texts[start : start + _BATCH], input_type="document")

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of a question."""
        import httpx

        with httpx.Client(timeout=self._timeout_s, headers=self._headers) as client:
            return self._request(client, [text], input_type="query")[0]

    def count_tokens(self, text: str) -> int:
        """Estimated at four characters a token."""
        return estimate_tokens(text)

    def _request(self, client: httpx.Client, texts: Sequence[str], *, input_type: str) -> list[NDArray[np.float32]]:
        cleaned = [redact(text).text.encode("utf-8", "replace").decode() for text in texts]
        body: dict[str, Any] = {"model": self._name, "input": [text or " " for text in cleaned]}
        if self._vendor == "voyage":
            body["input_type"] = input_type
        made = _vectors(self._post(client, body), expected=len(texts), url=self._shown_url)
        sizes = {len(vector) for vector in made} | {self._size or len(made[0])}
        if len(sizes) > 1:
            raise EmbeddingUnavailable(f"{self._shown_url} answered with vectors of different sizes.")
        self._size = len(made[0])
        return made

    def _post(self, client: httpx.Client, body: dict[str, Any]) -> Any:
        import httpx

        reason, wait_s = "", 0.0
        for attempt in range(_ATTEMPTS):
            time.sleep(wait_s)
            try:
                with client.stream("POST", self._url, json=body) as response:
                    if response.status_code == 200:
                        return json.loads(self._content(response))
            except httpx.InvalidURL as error:
                reason = _without_credentials(str(error))
                break
            except httpx.HTTPError as error:
                reason, wait_s = shorten(str(error), 200) or type(error).__name__, 0.5 * 2**attempt
                continue
            except (ValueError, RecursionError):
                raise EmbeddingUnavailable(f"{self._shown_url} answered with something that is not JSON.") from None
            reason = f"HTTP {response.status_code}"
            if response.status_code not in _RETRIED:
                break
            wait_s = min(_retry_after_s(response.headers.get("retry-after")) or 0.5 * 2**attempt, _LONGEST_WAIT_S)
        raise EmbeddingUnavailable(
            f"{self._shown_url} gave no vectors ({reason}).", hint="Check base URL, key and network."
        )

    def _content(self, response: httpx.Response) -> bytes:
        """The bytes of a reply, which may trickle for no longer than the timeout: httpx bounds each wait only."""
        import httpx

        until = time.monotonic() + self._timeout_s
        content = bytearray()
        for chunk in response.iter_bytes():
            content += chunk
            if time.monotonic() > until:
                raise httpx.ReadTimeout("the reply took too long")
            if len(content) > _MAX_REPLY_BYTES:
                raise EmbeddingUnavailable(
                    f"{self._shown_url} answered with more than {_MAX_REPLY_BYTES // 1_000_000} MB."
                )
        return bytes(content)


def _retry_after_s(header: str | None) -> float | None:
    return float(header) if header and re.fullmatch(r"[0-9]+(\.[0-9]+)?", header) else None


def _without_credentials(url: str) -> str:
    """An address as it may be stored and shown: without user, password, query and fragment."""
    return re.sub(r"[?#].*", "", re.sub(r"(?<=://)[^/?#]*@", "", url))


def _vectors(reply: Any, *, expected: int, url: str) -> list[NDArray[np.float32]]:
    import numpy as np

    try:
        entries = {entry["index"]: entry["embedding"] for entry in reply["data"]}
        matrix = np.array([entries[number] for number in range(len(reply["data"]))], dtype=np.float64)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise EmbeddingUnavailable(f"{url} answered in a form that is no list of embeddings.") from None
    is_sound = matrix.ndim == 2 and matrix.size and bool((np.abs(matrix) < _LARGEST_NUMBER).all())
    if not is_sound or len(matrix) != expected:
        raise EmbeddingUnavailable(f"{url} answered with {len(matrix)} vectors, not all usable, for {expected} texts.")
    norms = np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
    return list((matrix / norms).astype(np.float32))
