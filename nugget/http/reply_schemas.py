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
_ROW = {"source_table": _TEXT, "source_id": _COUNT, "ts_ms": _COUNT}
_QUERY = {"text": _TEXT, "profile": _TEXT, "path": _MAYBE_TEXT, "symbol": _MAYBE_TEXT, "depth": _TEXT}
_BUDGET = {"requested": _COUNT, "used": _COUNT, "available": _COUNT, "truncated": _FLAG}

REPLIES: Mapping[str, dict[str, Any]] = {
    "Error": _object({"error": _object({"code": _TEXT, "message": _TEXT, "hint": _MAYBE_TEXT})}),
    "Health": _object(
        {
            "status": {"const": "ok"}, "version": _TEXT, "pid": _COUNT, "brain": _MAYBE_TEXT, "under_way": _COUNT,
            "backfill": _object(
                {
                    "state": {"enum": ["off", "running", "done", "stopped", "failed"]},
                    "done": _COUNT, "total": _COUNT, "problems": _list(_TEXT),
                }
            ),
        },
        optional=("version", "pid", "brain", "under_way", "backfill"),
    ),
    "Bundle": _object(
        {
            "query": _object(_QUERY), "budget": _object(_BUDGET), "degraded": _list(_TEXT), "answer": _MAYBE_TEXT,
            "hits": _list(_object(_HIT)), "more_context_hint": _MAYBE_TEXT, "weak": _FLAG, "explain": _OBJECT,
        },
        optional=("weak", "explain"),
    ),
    "Unit": _object({**_UNIT, "body": _TEXT, "evidence": _list(_object({"session": _TEXT, "quote": _TEXT}))}),
    "Stretch": _object(
        {
            "ref": _TEXT, "source": _TEXT, "session": _TEXT, "title": _TEXT, "agent": _TEXT, "folder": _TEXT,
            "path": _TEXT,
            "passages": _list(
                _object(
                    {
                        "ref": _TEXT, "role": _TEXT, "speaker": _TEXT, "timestamp": _MAYBE_TEXT, "text": _TEXT,
                        "asked_for": _FLAG,
                    }
                )
            ),
        }
    ),
    "Shown": {"anyOf": [{"$ref": "#/components/schemas/Unit"}, {"$ref": "#/components/schemas/Stretch"}]},
    "Session": _object({"id": _TEXT, "title": _TEXT, "created_ms": _COUNT, "log_dir": _TEXT}),
    "Ingested": _object(
        {
            "session_id": _TEXT, "source": {"enum": ["shell", "sessions"]}, "events": _COUNT, "command_inputs": _COUNT,
            "pane_output": _COUNT, "file_edits": _COUNT, "working_notes": _COUNT, "incidents": _COUNT,
            "malformed": _COUNT, "bytes_read": _COUNT, "anew": _list(_TEXT),
            "redacted": {"type": "object", "additionalProperties": _COUNT},
        }
    ),
    "ContextBundle": _object(
        {
            "session_id": _MAYBE_TEXT, "query": _TEXT, "intent": _TEXT,
            "incidents": _list(
                _object(
                    {
                        "title": _TEXT, "summary": _list(_TEXT), "reasons": _list(_TEXT), "score": _NUMBER,
                        "command": _MAYBE_TEXT, "failures": _COUNT, "fixed_by": _MAYBE_TEXT, **_ROW,
                    }
                )
            ),
            "artifacts": _list(_object({"kind": _TEXT, "text": _TEXT, "open": _FLAG, "score": _NUMBER, **_ROW})),
            "selected_evidence": _list(
                _object({"kind": _TEXT, "text": _TEXT, "score": _NUMBER, "reasons": _list(_TEXT), **_ROW})
            ),
            "context_text": _TEXT, "truncated": _FLAG, "degraded": _list(_TEXT),
            "explain": _object(
                {
                    "intent": _TEXT, "selected_count": _COUNT, "candidate_count": _COUNT,
                    "profile": _object({"category_caps": {"type": "object", "additionalProperties": _COUNT}}),
                }
            ),
        },
        optional=("explain",),
    ),
    "Message": _object(
        {"id": _TEXT, "type": {"const": "message"}, "role": _TEXT, "model": _TEXT, "content": _list(_OBJECT),
         "stop_reason": _MAYBE_TEXT, "usage": _OBJECT, "context": _OBJECT},
        optional=("context",),
    ),
    "OpenAPI": _object({"openapi": _TEXT, "info": _OBJECT, "paths": _OBJECT}),
}  # fmt: skip
"""By the names that operations use."""
