"""Cut what Nugget uses of GitHub out of GitHub's own description of its API, for the tests' scripted GitHub.

    npm pack @octokit/openapi && tar xzf octokit-openapi-*.tgz
    python scripts/forge_api.py package/generated/api.github.com.json

Writes tests/fixtures/forges/github.json: the operations, all that they refer to, and one example of each value that
is replied, with the fields that must be there. A field that the description does not name is refused, in requests
and in replies. The description is under the MIT licence (Copyright GitHub Inc. and Octokit contributors).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "tests" / "fixtures" / "forges" / "github.json"
REPOSITORY = "/repos/{owner}/{repo}"
OPERATIONS = {
    REPOSITORY: ["get"],
    f"{REPOSITORY}/pulls": ["get", "post"],
    f"{REPOSITORY}/pulls/{{pull_number}}": ["get", "patch"],
    f"{REPOSITORY}/pulls/{{pull_number}}/merge": ["put"],
    f"{REPOSITORY}/issues/{{issue_number}}/labels": ["post"],
    f"{REPOSITORY}/issues/{{issue_number}}/comments": ["post"],
}
EVERYWHERE = {"301": "Moved", "401": "Bad credentials", "404": "Not found, or not shown to this token"}
"""Replies that GitHub documents for all operations at once, beside the description."""
EXAMPLES = {
    "full-repository": "full-repository-default-response",
    "pull-request": "pull-request",
    "pull-request-simple": "pull-request-simple-items",
    "label": "label-items",
    "issue-comment": "issue-comment",
}
PROSE = {"description", "summary", "tags", "externalDocs", "examples", "example", "title", "operationId", "default"}


def main(source: str) -> None:
    """Write the cut of the description in a file."""
    whole = json.loads(Path(source).read_text())
    paths: dict[str, Any] = {}
    for path, methods in OPERATIONS.items():
        paths[path] = {method: bare(whole["paths"][path][method]) for method in methods}
        for operation in paths[path].values():
            operation["responses"] = {status: named(reply) for status, reply in operation["responses"].items()}
            error = {"schema": {"$ref": "#/components/schemas/basic-error"}}
            for status, meaning in EVERYWHERE.items():
                reply = {"description": meaning, "content": {"application/json": error}}
                operation["responses"].setdefault(status, reply)
    components = referred(paths, whole["components"])
    components["examples"] = {name: {"value": example(whole, name)} for name in EXAMPLES}
    info = {name: whole["info"][name] for name in ("title", "version", "license")}
    cut = {"openapi": whole["openapi"], "info": info, "paths": paths, "components": components}
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(json.dumps(cut, indent=1, sort_keys=True) + "\n")


def bare(value: Any, *, names_fields: bool = False) -> Any:
    """Return a part of the description without its prose; objects take no fields but those named."""
    if isinstance(value, list):
        return [bare(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {name: bare(one, names_fields=name == "properties") for name, one in value.items()
            if names_fields or (name not in PROSE and not name.startswith("x-"))}  # fmt: skip
    if not names_fields and isinstance(kept.get("properties"), dict) and kept.get("type") == "object":
        kept.setdefault("additionalProperties", False)
    return kept


def named(reply: dict[str, Any]) -> dict[str, Any]:
    """Return a reply with the description that OpenAPI demands."""
    return reply if "$ref" in reply else {"description": "", **reply}


def references(value: Any) -> Iterator[str]:
    """Yield what a part of the description refers to."""
    for name, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if name == "$ref" and isinstance(one, str):
            yield one
        else:
            yield from references(one)


def referred(paths: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    """Return the components that the operations refer to, directly or not."""
    components: dict[str, Any] = {}
    waiting = [*references(paths)]
    while waiting:
        _, _, kind, name = waiting.pop().split("/")
        if name not in components.setdefault(kind, {}):
            found = bare(whole[kind][name])
            components[kind][name] = named(found) if kind == "responses" else found
            waiting += references(found)
    return components


def example(whole: dict[str, Any], name: str) -> Any:
    """Return the example of a schema, with the fields that must be there."""
    value = whole["components"]["examples"][EXAMPLES[name]]["value"]
    return needed(value[0] if isinstance(value, list) else value, whole["components"]["schemas"][name], whole)


def needed(value: Any, schema: dict[str, Any], whole: dict[str, Any]) -> Any:
    """Return a value without the fields that its schema can do without."""
    if "$ref" in schema:
        return needed(value, whole["components"]["schemas"][schema["$ref"].rpartition("/")[2]], whole)
    if isinstance(value, list):
        return [needed(one, schema.get("items", {}), whole) for one in value[:1]]
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    fields = schema["properties"]
    return {name: needed(value.get(name), fields[name], whole) for name in schema.get("required", ())}


if __name__ == "__main__":
    main(sys.argv[1])
