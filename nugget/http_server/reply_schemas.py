"""The shapes of what the server answers, as JSON Schema 2020-12, for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TEXT: dict[str, Any] = {"type": "string"}
_MAYBE_TEXT: dict[str, Any] = {"type": ["string", "null"]}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_NUMBER: dict[str, Any] = {"type": "number"}
_FLAG: dict[str, Any] = {"type": "boolean"}
_OBJECT: dict[str, Any] = {"type": "object"}


def _list(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": dict(entry)}


def _object(properties: Mapping[str, Any], *, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "required": required, "properties": dict(properties)}


_UNIT = {
    "id": _TEXT, "source": _TEXT, "type": _TEXT, "title": _TEXT, "domain": _TEXT, "tags": _list(_TEXT),
    "confidence": _NUMBER, "origin": _MAYBE_TEXT, "scope": {"type": ["object", "null"]}, "path": _MAYBE_TEXT,
    "ref": _TEXT, "created": _MAYBE_TEXT, "last_modified": _MAYBE_TEXT,
    "related": _list(_object({"id": _TEXT, "relation": _TEXT})),
}  # fmt: skip
_HIT = {
    **_UNIT, "stale": _FLAG, "stale_reason": _MAYBE_TEXT, "score": _NUMBER,
    "chunks": _list(_object({"breadcrumb": _TEXT, "text": _TEXT, "score": _NUMBER})), "reasons": _list(_TEXT),
}  # fmt: skip
_QUERY = {"text": _TEXT, "profile": _TEXT, "path": _MAYBE_TEXT, "symbol": _MAYBE_TEXT, "depth": _TEXT}
_BUDGET = {"requested": _COUNT, "used": _COUNT, "available": _COUNT, "truncated": _FLAG}

REPLIES: Mapping[str, dict[str, Any]] = {
    "Error": _object({"error": _object({"code": _TEXT, "message": _TEXT, "hint": _MAYBE_TEXT})}),
    "Health": _object(
        {"status": {"const": "ok"}, "version": _TEXT, "pid": _COUNT, "brain": _MAYBE_TEXT, "under_way": _COUNT},
        optional=("version", "pid", "brain", "under_way"),
    ),
    "Bundle": _object(
        {
            "query": _object(_QUERY), "budget": _object(_BUDGET), "degraded": _list(_TEXT), "answer": _MAYBE_TEXT,
            "hits": _list(_object(_HIT)), "more_context_hint": _MAYBE_TEXT, "weak": _FLAG, "explain": _OBJECT,
        },
        optional=("weak", "explain"),
    ),
    "Unit": _object({**_UNIT, "body": _TEXT, "evidence": _list(_object({"session": _TEXT, "quote": _TEXT}))}),
    "OpenAPI": _object({"openapi": _TEXT, "info": _OBJECT, "paths": _OBJECT}),
}  # fmt: skip
"""By the names that operations use."""
