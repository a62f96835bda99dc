"""GitHub's published description of its REST API (github_openapi/), as a judge of requests and replies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlsplit

from openapi_core import OpenAPI
from openapi_core.exceptions import OpenAPIError
from openapi_core.testing import MockRequest, MockResponse
from paths import TESTS

HOST = "https://api.github.com"
FOLDER = TESTS / "github_openapi"


@cache
def described() -> dict[str, Any]:
    """The description, as it was published."""
    loaded: dict[str, Any] = json.loads((FOLDER / "description.json").read_text("utf-8"))
    return loaded | {"servers": [{"url": HOST}]}


@cache
def _judge() -> OpenAPI:
    return OpenAPI.from_dict(described())


def request_misfits(method: str, address: str, body: bytes) -> Iterator[str]:
    """What is wrong with a request: its path, method, query or body, or a name in these that GitHub does not know."""
    asked = _request(method, address, body)
    try:
        _judge().validate_request(asked)
    except OpenAPIError as error:
        yield f"{method} {address}: {_reasons(error)}"
        return
    operation = _operation(method, urlsplit(address).path)
    known = {_resolved(parameter)["name"] for parameter in operation["parameters"]}
    yield from (f"{method} {address}: unknown in query: {name}" for name in parse_qs(asked.query) if name not in known)
    sent = json.loads(body) if body else {}
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    named = set().union(*(one.get("properties", {}) for one in [schema, *schema.get("oneOf", ())]))
    if isinstance(sent, Mapping):
        yield from (f"{method} {address}: unknown in body: {name}" for name in sent if name not in named)


def reply_misfits(method: str, address: str, status: int, body: bytes) -> Iterator[str]:
    """What is wrong with a reply. A refusal that an operation does not list (401, say) is a `basic-error`."""
    operation = _operation(method, urlsplit(address).path)
    if str(status) not in operation.get("responses", {}):
        said = json.loads(body)
        names = set(described()["components"]["schemas"]["basic-error"]["properties"])
        if status < 400 or not isinstance(said, dict) or not set(said) <= names:
            yield f"{status} for {method} {address}: neither described nor a refusal: {body[:100]!r}"
        return
    try:
        reply = MockResponse(body, status, content_type="application/json")
        _judge().validate_response(_request(method, address, b""), reply)
    except OpenAPIError as error:
        yield f"{status} for {method} {address}: {_reasons(error)}"


def _request(method: str, address: str, body: bytes) -> Any:
    parts = urlsplit(address)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    asked = MockRequest(HOST, method.lower(), parts.path, args=query, data=body or None)
    asked.query = parts.query
    return asked


def _operation(method: str, path: str) -> Mapping[str, Any]:
    """The operation at a path; empty where there is none."""
    parts = path.strip("/").split("/")
    for template, methods in described()["paths"].items():
        names = template.strip("/").split("/")
        if len(names) == len(parts) and all(a == b or a.startswith("{") for a, b in zip(names, parts, strict=True)):
            found: Mapping[str, Any] = methods.get(method.lower(), {})
            return found
    return {}


def _resolved(value: Mapping[str, Any]) -> Mapping[str, Any]:
    name = str(value.get("$ref", "")).rpartition("/")[2]
    return described()["components"]["parameters"][name] if name else value


def _reasons(error: OpenAPIError) -> str:
    inner = getattr(error.__cause__, "schema_errors", None) or ()
    return "; ".join([str(one.message)[:200] for one in inner][:5]) or str(error)[:300]
