"""The OpenAPI 3.1 document, made from the operations and the models that check their parameters.

Format: https://spec.openapis.org/oas/v3.1.1
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from nugget import __version__
from nugget.http.reply_schemas import REPLIES

if TYPE_CHECKING:
    from pydantic import BaseModel

    from nugget.http.app import Operation

_REFS = "#/components/schemas/{model}"
_PATH_ID = re.compile(r"{(\w+)(?::path)?}")
_ALWAYS = (400, 401, 403, 404, 405, 408, 413, 414, 415, 421, 422, 429, 431, 500)
"""The statuses that any request can get: see docs/http.md."""


def describe(operations: Sequence[Operation]) -> dict[str, Any]:
    """The document for these operations."""
    schemas: dict[str, Any] = dict(REPLIES)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = _PATH_ID.sub(r"{\1}", operation.path)
        paths.setdefault(path, {})[operation.method.lower()] = _operation(operation, schemas)
    paths["/mcp"] = {"post": _mcp()}
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "Nugget",
            "version": __version__,
            "summary": "The memory layer for coding agents",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "NUGGET_HTTP_TOKEN, where the server was started with one",
                }
            },
        },
    }


def _operation(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"operationId": operation.name, "summary": operation.summary}
    parameters = [_path_parameter(name) for name in _PATH_ID.findall(operation.path)]
    if operation.method == "GET":
        parameters += _query_parameters(operation.parameters)
    elif operation.parameters.model_fields:
        name = operation.parameters.__name__
        schemas.update(_schemas_of(operation.parameters))
        is_needed = any(field.is_required() for field in operation.parameters.model_fields.values())
        described["requestBody"] = {
            "required": is_needed,
            "content": {"application/json": {"schema": {"$ref": _REFS.format(model=name)}}},
        }
    if parameters:
        described["parameters"] = parameters
    content = {"application/json": {"schema": {"$ref": _REFS.format(model=operation.reply)}}}
    if operation.streams:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    described["responses"] = {
        str(operation.status): {"description": operation.summary, "content": content},
        **{str(status): _refusal(status) for status in sorted({*_ALWAYS, *operation.errors})},
    }
    return described


def _path_parameter(name: str) -> dict[str, Any]:
    words = {"ref": "A ref or a unit's id, its slashes as they are, `#` as %23", "session": "The session's id"}
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": words[name],
        "schema": {"type": "string", "minLength": 1, "maxLength": 500},
    }


def _query_parameters(model: type[BaseModel]) -> list[dict[str, Any]]:
    """The fields of a model as query parameters; a list is written with commas or by repeating its name."""
    schema = model.model_json_schema()
    definitions = schema.get("$defs", {})
    return [
        {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", ()),
            "description": entry.pop("description", name),
            "schema": _inlined(entry, definitions),
        }
        for name, entry in schema.get("properties", {}).items()
    ]


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inlined(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    return {key: _inlined(part, definitions) for key, part in schema.items()}


def _schemas_of(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template=_REFS)
    return {**schema.pop("$defs", {}), model.__name__: schema}


def _refusal(status: int) -> dict[str, Any]:
    refusal: dict[str, Any] = {
        "description": "Overloaded" if status == 529 else HTTPStatus(status).phrase,
        "content": {"application/json": {"schema": {"$ref": _REFS.format(model="Error")}}},
    }
    if status == 429:
        refusal["headers"] = {"Retry-After": {"description": "Seconds to wait", "schema": {"type": "integer"}}}
    return refusal


def _mcp() -> dict[str, Any]:
    return {
        "operationId": "mcp",
        "summary": "The Model Context Protocol over streamable HTTP, without sessions",
        "externalDocs": {"url": "https://modelcontextprotocol.io/specification/"},
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}},
        "responses": {
            "200": {
                "description": "A JSON-RPC response",
                "content": {"application/json": {"schema": {"type": "object"}}},
            },
            "202": {"description": "A notification was taken"},
            **{str(status): _refusal(status) for status in (401, 403, 405, 413, 421, 429)},
        },
    }
