"""What each endpoint can be asked for: the one place that checks requests and that the OpenAPI document is made from.

A request is read into one of these from the query string or from a JSON body, whichever it has; lists may be written
with commas. What no model knows is refused, so that a misspelt name is told and not ignored.
"""

from __future__ import annotations

import json
from datetime import date
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from nugget.http.replies import Refusal
from nugget.models import Depth, KnowledgeType, SourceName

MAX_QUESTION_CHARS = 8_000
MAX_PARAMETERS = 64

_M = TypeVar("_M", bound="Parameters")


def _parts(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _not_blank(value: Any) -> Any:
    if isinstance(value, str) and not value.strip():
        raise ValueError("is empty")
    return value


Question = Annotated[str, BeforeValidator(_not_blank), Field(min_length=1, max_length=MAX_QUESTION_CHARS)]
Names = Annotated[list[Annotated[str, Field(max_length=200)]], BeforeValidator(_parts), Field(max_length=50)]
Types = Annotated[list[KnowledgeType], BeforeValidator(_parts), Field(max_length=20)]
Sources = Annotated[list[SourceName], BeforeValidator(_parts), Field(max_length=20)]


class Parameters(BaseModel):
    """Base of all requests: frozen, and nothing unknown in them."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Finding(Parameters):
    """What search and ask have in common."""

    q: Question = Field(description="The question, or the words to look for")
    limit: int | None = Field(default=None, ge=1, le=200, description="Units, at most")
    types: Types = Field(default=[], description="Only these types")
    domains: Names = Field(default=[], description="Only these domains and what is below them")
    tags: Names = Field(default=[], description="Only what has all these tags")
    since: date | None = Field(default=None, description="Only what was made or changed since (YYYY-MM-DD)")
    explain: bool = Field(default=False, description="Add how each score came about")


class SearchRequest(Finding):
    """What `nugget search` takes."""

    sources: Sources = Field(default=[], description="Only these sources")


class AskRequest(Finding):
    """What `nugget ask` takes."""

    budget: int | None = Field(default=None, ge=100, le=100_000, description="Tokens in the answer, at most")
    depth: Depth = Field(default=Depth.STANDARD, description="How much of each unit")
    no_llm: bool = Field(default=False, description="Only passages, even with a key")


class RefRequest(Parameters):
    """What `nugget get` takes beside the ref."""

    around: int = Field(default=1, ge=0, le=50, description="Exchanges or messages before and behind the one named")


class NothingRequest(Parameters):
    """For endpoints that take no parameters."""


class SessionRequest(Parameters):
    """A new shell session."""

    title: str = Field(default="", max_length=500, description="What the session is about")


def read_parameters(model: type[_M], *, query_string: bytes, body: bytes, content_type: str) -> _M:
    """The request as a model. Raises Refusal: 400 for what is no JSON, 415 for another type, 422 for a wrong value."""
    given = _query_values(query_string)
    if body.strip():
        given = {**given, **json_object(body, content_type)}
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise _invalid(error, model) from None


def check_is_json(content_type: str) -> None:
    """Refuse a body that says it is something else. Raises Refusal."""
    if content_type.split(";")[0].strip().lower() != "application/json":
        raise Refusal(
            415, "unsupported_media_type", "The body has to be JSON.", hint="Send `Content-Type: application/json`."
        )


def json_object(body: bytes, content_type: str) -> dict[str, Any]:
    """The JSON object of a body. Raises Refusal."""
    check_is_json(content_type)
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise Refusal(400, "malformed_json", f"The body is no valid JSON{where}.", hint=None) from None
    if not isinstance(value, dict):
        raise Refusal(400, "malformed_json", "The body has to be a JSON object.", hint='Write {"q": "..."}.')
    return value


def _query_values(query_string: bytes) -> dict[str, Any]:
    """The values of a query string; a name that comes again is a list with commas."""
    values: dict[str, str] = {}
    try:
        pairs = parse_qsl(
            query_string.decode("latin-1"), keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS
        )
    except (ValueError, UnicodeDecodeError):
        raise Refusal(400, "bad_query", "The query string cannot be read as UTF-8 `name=value` pairs.") from None
    for name, value in pairs:
        if "\0" in value:
            raise Refusal(400, "bad_query", f"`{name[:60]}` holds a NUL character.")
        values[name] = f"{values[name]},{value}" if name in values else value
    return {name: value for name, value in values.items() if value != "" or name == "q"}


def _invalid(error: ValidationError, model: type[BaseModel]) -> Refusal:
    """The first thing that is wrong, in a sentence."""
    first = error.errors(include_url=False, include_input=False)[0]
    name = ".".join(str(part) for part in first["loc"]) or "the request"
    known = f"Parameters are: {', '.join(model.model_fields)}." if model.model_fields else "There are none here."
    if first["type"] == "extra_forbidden":
        return Refusal(422, "unknown_parameter", f"There is no parameter `{name[:60]}`.", hint=known)
    if first["type"] == "missing":
        return Refusal(422, "missing_parameter", f"The parameter `{name}` is missing.", hint=known)
    said = first["msg"].removeprefix("Value error, ")
    said = said[0].lower() + said[1:]
    more = f" ({len(error.errors()) - 1} more)" if len(error.errors()) > 1 else ""
    return Refusal(422, "invalid_parameter", f"`{name[:60]}`: {said}{more}.", hint=known)


Intent = Literal["debug", "what-changed", "resume", "status", "general"]
