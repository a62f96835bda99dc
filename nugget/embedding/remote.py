"""Embeddings over HTTP: the OpenAI and Voyage request formats, at any base URL.

Texts are redacted before they leave the machine. Formats: platform.openai.com/docs/api-reference/embeddings and
docs.voyageai.com/reference/embeddings-api.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from nugget.config import EmbeddingSettings, Environment
from nugget.errors import EmbeddingUnavailable
from nugget.redaction import redact
from nugget.text import estimate_tokens

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
        body: dict[str, Any] = {"model": self._name, "input": [redact(text).text or " " for text in texts]}
        if self._vendor == "voyage":
            body["input_type"] = input_type
        return _vectors(self._post(client, body), expected=len(texts), url=self._shown_url)

    def _post(self, client: httpx.Client, body: dict[str, Any]) -> Any:
        import httpx

        reason, wait_s = "", 0.0
        for attempt in range(_ATTEMPTS):
            time.sleep(wait_s)
            try:
                response = client.post(self._url, json=body)
            except httpx.InvalidURL as error:
                reason = _without_credentials(str(error))
                break
            except httpx.HTTPError as error:
                reason, wait_s = str(error) or type(error).__name__, 0.5 * 2**attempt
                continue
            if response.status_code == 200:
                try:
                    return response.json()
                except ValueError:
                    raise EmbeddingUnavailable(f"{self._shown_url} answered with something that is not JSON.") from None
            reason = f"HTTP {response.status_code}"
            if response.status_code not in _RETRIED:
                break
            wait_s = min(_retry_after_s(response.headers.get("retry-after")) or 0.5 * 2**attempt, _LONGEST_WAIT_S)
        raise EmbeddingUnavailable(
            f"{self._shown_url} gave no vectors ({reason}).", hint="Check base URL, key and network."
        )


def _retry_after_s(header: str | None) -> float | None:
    return float(header) if header and re.fullmatch(r"\d+(\.\d+)?", header) else None


def _without_credentials(url: str) -> str:
    """An address as it may be stored and shown: without user, password, query and fragment."""
    return re.sub(r"[?#].*", "", re.sub(r"(?<=://)[^/?#]*@", "", url))


def _vectors(reply: Any, *, expected: int, url: str) -> list[NDArray[np.float32]]:
    import numpy as np

    try:
        entries = sorted(reply["data"], key=lambda entry: int(entry["index"]))
        matrix = np.array([entry["embedding"] for entry in entries], dtype=np.float32)
    except (KeyError, TypeError, ValueError):
        raise EmbeddingUnavailable(f"{url} answered in a form that is no list of embeddings.") from None
    if matrix.ndim != 2 or matrix.shape[0] != expected or not np.isfinite(matrix).all():
        raise EmbeddingUnavailable(f"{url} answered with {len(matrix)} usable vectors for {expected} texts.")
    norms = np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
    return list(matrix / norms)
