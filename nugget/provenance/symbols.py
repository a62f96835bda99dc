"""Find where a symbol is defined: Python by `ast`, other languages by tree-sitter if installed."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePosixPath
from typing import Any

from nugget.errors import GitError
from nugget.infra import git
from nugget.provenance.checkout import Checkout

MAX_FILE_BYTES = 2_000_000
MAX_FILES = 200
"""Files that hold the name and are parsed, at most, when no file is given."""

GRAMMARS = {
    ".js": "javascript", ".jsx": "javascript", ".mjs": "javascript", ".cjs": "javascript", ".ts": "typescript",
    ".mts": "typescript", ".cts": "typescript", ".tsx": "tsx", ".go": "go", ".rs": "rust", ".java": "java",
    ".rb": "ruby", ".c": "c", ".h": "c", ".cc": "cpp", ".cpp": "cpp", ".cxx": "cpp", ".hpp": "cpp", ".hh": "cpp",
}  # fmt: skip
"""File endings with the tree-sitter grammar that reads them."""
_PYTHON = (".py", ".pyi")
_DEFINES = re.compile(
    r"(function|method|class|interface|struct|enum|trait|union|module|type|impl|mod|const|static|macro|record"
    r"|type_alias|abstract_class|generator_function|singleton_method|constructor|annotation_type|public_field|field)"
    r"_?(declaration|definition|item|specifier|spec)?|variable_declarator"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A definition of a symbol; lines count from 1. `inner` are the names that are defined inside it."""

    path: str
    name: str
    kind: str
    first_line: int
    last_line: int
    inner: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = f"{self.first_line}-{self.last_line}" if self.last_line > self.first_line else str(self.first_line)
        return f"{self.path}:{lines} ({self.kind} {self.name})"


_Found = tuple[tuple[str, ...], str, int, int]
"""The names of a definition with those around it, its kind, its first and last line."""


def is_symbol(name: str) -> bool:
    """Return True for a text that can name a symbol: `login`, `Session.refresh`, `Session::refresh`."""
    return re.fullmatch(r"[\w$.:#?!~]{1,200}", name) is not None and bool(_parts(name))


def find_definitions(checkout: Checkout, name: str, *, path: str | None = None) -> list[Definition]:
    """Return the definitions of a symbol in a file, below a folder, or (`path` None or empty) in the whole workspace.

    A dotted name says what it is in: `Session.refresh`. By path and line. A file that cannot be parsed has none.
    """
    is_file = path and not checkout.is_folder(path)
    paths = [path] if path and is_file else _paths_with(checkout, _parts(name)[-1], path or ".")[:MAX_FILES]
    contents = ((one, checkout.read(one, max_bytes=MAX_FILE_BYTES) or b"") for one in paths)
    return [definition for one, content in contents for definition in definitions_in(one, content, name)]


def definitions_in(path: str, content: bytes, name: str) -> list[Definition]:
    """Return the definitions of a symbol in the content of a file, whose language its ending tells."""
    wanted = _parts(name)
    read = _reader(path) if wanted and wanted[-1].encode() in content else None
    everything = list(read(content)) if read else []
    return [
        Definition(
            path=path, name=".".join(names), kind=kind, first_line=first, last_line=last,
            inner=tuple(dict.fromkeys(
                other[-1] for other, *_ in everything if len(other) > len(names) and other[: len(names)] == names
            )),
        )
        for names, kind, first, last in everything
        if names[-len(wanted) :] == wanted
    ]  # fmt: skip


def can_read(path: str) -> bool:
    """Return whether definitions can be found in a file of this name."""
    return _reader(path) is not None


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"\.|::|#", name) if part)


def _paths_with(checkout: Checkout, word: str, folder: str) -> list[str]:
    """Return the files of known languages below a folder that hold a word, sorted."""
    where = ["--untracked"] if checkout.workspace.common_dir is not None else ["--no-index", "--exclude-standard"]
    command = ["grep", "-l", "-z", "-I", "--fixed-strings", *where, "-e", word, "--", folder]
    try:
        output = git.run(checkout.workspace.root, *command, check=False, timeout_s=10)
    except GitError:
        return []
    return sorted(path for path in os.fsdecode(output).split("\0") if path.lower().endswith((*_PYTHON, *GRAMMARS)))


def _reader(path: str) -> Callable[[bytes], Iterator[_Found]] | None:
    """Return the parser for a file; None if no grammar is known or installed."""
    suffix = PurePosixPath(path).suffix.lower()
    grammar = GRAMMARS.get(suffix)
    if suffix in _PYTHON:
        return _in_python
    if grammar is None:
        return None
    try:
        from tree_sitter import Language, Parser

        package = import_module(f"tree_sitter_{'typescript' if grammar == 'tsx' else grammar}")
        # The one package with two grammars names them.
        make = getattr(package, f"language_{grammar}", None) or package.language
        parser = Parser(Language(make()))
    except (ImportError, AttributeError, ValueError, OSError):
        return None
    return lambda content: _in_tree(parser.parse(content).root_node)


def _in_python(content: bytes) -> Iterator[_Found]:
    try:
        yield from _in_body(ast.parse(content).body, ())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return


def _in_body(body: Sequence[ast.stmt], outer: tuple[str, ...]) -> Iterator[_Found]:
    for node in body:
        last = node.end_lineno or node.lineno
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            kind = "class" if isinstance(node, ast.ClassDef) else "method" if outer else "function"
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield (*outer, node.name), kind, first, last
            yield from _in_body(node.body, (*outer, node.name))
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    yield (*outer, target.id), "variable", node.lineno, last
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for inner in ("body", "orelse", "finalbody"):
                yield from _in_body(getattr(node, inner, []), outer)


def _in_tree(root: Any) -> Iterator[_Found]:
    """Yield every definition of a syntax tree, with the names around it. Not recursive: generated code nests deeply."""
    waiting: list[tuple[Any, tuple[str, ...]]] = [(root, ())]
    while waiting:
        node, names = waiting.pop()
        if _DEFINES.fullmatch(node.type) and (name := _name_of(node)):
            names = (*names, name)
            kind = node.type.partition("_")[0] if node.type != "variable_declarator" else "variable"
            yield names, kind, node.start_point[0] + 1, node.end_point[0] + 1
        waiting += [(child, names) for child in reversed(node.named_children)]


def _name_of(node: Any) -> str | None:
    """Return the name that a definition gives: its `name`, the type that an `impl` is for, C's innermost declarator."""
    for field in ("name", "type" if node.type == "impl_item" else "declarator"):
        named = node.child_by_field_name(field)
        while named is not None and (inner := named.child_by_field_name("declarator")) is not None:
            named = inner
        if named is not None and named.text and (named.child_count == 0 or named.type == "qualified_identifier"):
            return str(named.text.decode("utf-8", "replace")).rpartition("::")[2]
    return None
