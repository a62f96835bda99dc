"""Checks a value against the part of JSON Schema that Nugget's own schemas use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

_MAX_PROBLEMS = 20
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}


def problems_in(value: object, schema: Mapping[str, Any], *, where: str = "reply") -> list[str]:
    """Return what is wrong with a value, each with its place (`reply.units[2].type`); at most twenty.

    Knows type, enum, properties, required, additionalProperties (false), items, minItems, maxItems, minimum,
    maximum, minLength, maxLength and pattern; other keywords check nothing.
    """
    return list(islice(_problems(value, schema, where), _MAX_PROBLEMS))


def _problems(value: object, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    kind = schema.get("type")
    if kind is not None and not _is(value, kind):
        yield f"{where} is {_name(value)}, not {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where} is none of {', '.join(map(str, schema['enum']))}"
    if isinstance(value, dict):
        yield from _object_problems(value, schema, where)
    elif isinstance(value, list):
        yield from _bounds(len(value), schema, where, least="minItems", most="maxItems", of="entries")
        for number, entry in enumerate(value):
            yield from _problems(entry, schema.get("items", {}), f"{where}[{number}]")
    elif isinstance(value, str):
        yield from _bounds(len(value), schema, where, least="minLength", most="maxLength", of="characters")
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{where} does not look like {schema['pattern']}"
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _bounds(value, schema, where, least="minimum", most="maximum", of="")


def _object_problems(value: Mapping[Any, Any], schema: Mapping[str, Any], where: str) -> Iterator[str]:
    known: Mapping[str, Any] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{where}.{name} is missing"
    for name, entry in value.items():
        if name in known:
            yield from _problems(entry, known[name], f"{where}.{name}")
        elif schema.get("additionalProperties") is False:
            yield f"{where} has an unknown key"


def _bounds(size: float, schema: Mapping[str, Any], where: str, *, least: str, most: str, of: str) -> Iterator[str]:
    what = f"{where} ({size} {of})" if of else f"{where} ({size})"
    if least in schema and not size >= schema[least]:
        yield f"{what} is below {schema[least]}"
    if most in schema and not size <= schema[most]:
        yield f"{what} is above {schema[most]}"


def _is(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind])


def _name(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    return next((name for name, types in _TYPES.items() if isinstance(value, types)), type(value).__name__)
