"""What the server answers: JSON, and for what goes wrong one sentence in one shape.

`{"error": {"code": "...", "message": "one clear sentence", "hint": "what to do, or null"}}`
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from starlette.responses import Response

from nugget import errors
from nugget.redaction import redact

STATUS_OF: tuple[tuple[type[errors.NuggetError], int, str], ...] = (
    (errors.UsageError, 422, "invalid_request"),
    (errors.BrainError, 503, "no_brain"),
    (errors.IndexUnavailable, 503, "index_unavailable"),
    (errors.LLMUnavailable, 503, "llm_unavailable"),
    (errors.NuggetError, 500, "failed"),
)
"""The first kind that an error is decides its status and code."""


class Refusal(Exception):
    """A request that is not answered as asked, with the status and the sentence that say why."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.hint = hint
        self.headers = dict(headers or {})

    def reply(self) -> Response:
        """The refusal as a response."""
        return json_reply(error_body(self.code, str(self), self.hint), status=self.status, headers=self.headers)


def error_body(code: str, message: str, hint: str | None) -> dict[str, Any]:
    """The one shape of an error."""
    return {"error": {"code": code, "message": message, "hint": hint}}


def json_reply(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON document; nothing on the way may keep it or take it for something else."""
    content = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return Response(content, status_code=status, headers=dict(headers or {}), media_type="application/json")


def refusal_of(error: errors.NuggetError) -> Refusal:
    """An expected failure of Nugget as a refusal; its sentence may hold what a file says, so it is redacted."""
    status, code = next((status, code) for kind, status, code in STATUS_OF if isinstance(error, kind))
    hint = redact(error.hint).text if error.hint else None
    return Refusal(status, code, redact(str(error)).text, hint=hint)


def without_secrets(value: Any) -> Any:
    """A JSON value with every text in it redacted.

    All of them are looked at together first, a paragraph each: a reply has hundreds of texts, and hardly ever a secret.
    """
    together = "\n\n".join(_texts_in(value))
    return _redacted(value) if redact(together).counts else value


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(part)


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value).text if len(value) >= _SHORTEST_SECRET else value
    if isinstance(value, list):
        return [_redacted(part) for part in value]
    if isinstance(value, dict):
        return {key: _redacted(part) for key, part in value.items()}
    return value


_SHORTEST_SECRET = 8
