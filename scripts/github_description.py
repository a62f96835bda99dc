"""Cut GitHub's published description of its REST API down to the operations that Nugget uses.

    python scripts/github_description.py            # fetches the package @octokit/openapi with `npm pack`
    python scripts/github_description.py FOLDER     # takes an unpacked one

Writes tests/github_openapi/: the operations with every schema they refer to, without prose and examples, and the
licence of the package. The loopback GitHub of the tests is checked against it (tests/github_description.py).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

VERSION = "23.0.2"
OPERATIONS = (
    "repos/get", "pulls/list", "pulls/create", "pulls/get", "pulls/update", "pulls/merge", "issues/add-labels",
    "issues/create-comment",
)  # fmt: skip
TARGET = Path(__file__).parent.parent / "tests" / "github_openapi"

_PROSE = {"summary", "description", "examples", "example", "externalDocs", "tags", "title", "x-github", "x-octokit"}
_NAMED = {"properties", "patternProperties", "schemas", "parameters", "responses", "headers", "content"}
"""Below these the keys are names, not words of the description's own language."""


def main() -> None:
    """Write the cut."""
    with TemporaryDirectory() as scratch:
        package = Path(sys.argv[1]) if len(sys.argv) > 1 else fetched(Path(scratch))
        described = json.loads((package / "generated" / "api.github.com.json").read_text("utf-8"))
        licence = (package / "LICENSE").read_text("utf-8")
    TARGET.mkdir(exist_ok=True)
    text = json.dumps(cut(described), sort_keys=True, separators=(",", ":"))
    (TARGET / "description.json").write_text(text + "\n", "utf-8")
    (TARGET / "LICENSE").write_text(licence, "utf-8")
    print(f"{TARGET / 'description.json'}: {len(OPERATIONS)} operations, {len(text):,} characters")


def fetched(folder: Path) -> Path:
    """The package, fetched and unpacked."""
    subprocess.run(["npm", "pack", "--silent", f"@octokit/openapi@{VERSION}"], cwd=folder, check=True)
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / "package"


def cut(described: Mapping[str, Any]) -> dict[str, Any]:
    """The description with the operations of `OPERATIONS` and what they refer to."""
    paths: dict[str, dict[str, Any]] = {}
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            if isinstance(operation, dict) and operation.get("operationId") in OPERATIONS:
                paths.setdefault(path, {})[method] = without_prose(operation)
    components: dict[str, dict[str, Any]] = {}
    waiting = list(references(paths))
    while waiting:
        kind, name = waiting.pop().removeprefix("#/components/").split("/")
        if name not in components.setdefault(kind, {}):
            components[kind][name] = without_prose(described["components"][kind][name])
            waiting += references(components[kind][name])
    about = {"title": "GitHub's REST API, in part", "version": described["info"]["version"]}
    return {"openapi": described["openapi"], "info": about, "paths": paths, "components": components}


def without_prose(value: Any, *, named: bool = False) -> Any:
    """A copy without what is only there for readers; OpenAPI demands that responses are described, though."""
    if isinstance(value, dict):
        kept = {
            key: without_prose(inner, named=key in _NAMED and not named)
            for key, inner in value.items()
            if named or key not in _PROSE
        }
        is_response = "content" in value or "headers" in value or set(value) == {"description"}
        return {"description": ""} | kept if is_response and "description" in value and not named else kept
    return [without_prose(inner) for inner in value] if isinstance(value, list) else value


def references(value: Any) -> Iterator[str]:
    """Every `$ref` in a value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref":
                yield inner
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


if __name__ == "__main__":
    main()
