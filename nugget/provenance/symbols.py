"""Find where a symbol is defined: Python by `ast`, other languages by tree-sitter if installed."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from nugget.errors import GitError
from nugget.infra import git
from nugget.provenance.checkout import Checkout

MAX_FILE_BYTES = 2_000_000
MAX_FILES = 200
"""Files that hold the name and are parsed, at most, when no file is given."""
_MAX_WALKED = 20_000

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
_SYMBOL = re.compile(r"[\w$.:#?!~]{1,200}")


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


@dataclass(frozen=True, slots=True)
class _Found:
    qualified: tuple[str, ...]
    kind: str
    first_line: int
    last_line: int


def is_symbol(name: str) -> bool:
    """Return True for a text that can name a symbol: `login`, `Session.refresh`, `Session::refresh`."""
    return _SYMBOL.fullmatch(name) is not None and bool(_parts(name))


def find_definitions(checkout: Checkout, name: str, *, path: str | None = None) -> list[Definition]:
    """Return the definitions of a symbol in a file, below a folder, or (`path` None or empty) in the whole workspace.

    A dotted name says what it is in: `Session.refresh`. By path and line. A file that cannot be parsed has none.
    """
    if path and not checkout.is_folder(path):
        paths = [path]
    else:
        paths = sorted(_paths_with(checkout, _parts(name)[-1], path or ""))[:MAX_FILES]
    found: list[Definition] = []
    for candidate in paths:
        found += definitions_in(candidate, _content(checkout, candidate), name)
    return found


def definitions_in(path: str, content: bytes, name: str) -> list[Definition]:
    """Return the definitions of a symbol in the content of a file, whose language its ending tells."""
    wanted = _parts(name)
    suffix = PurePosixPath(path).suffix.lower()
    if not wanted or wanted[-1].encode() not in content:
        return []
    read = _in_python if suffix in _PYTHON else _parser(suffix)
    if read is None:
        return []
    everything = list(read(content))
    return [
        Definition(
            path=path, name=".".join(one.qualified), kind=one.kind, first_line=one.first_line, last_line=one.last_line,
            inner=tuple(
                dict.fromkeys(
                    other.qualified[-1]
                    for other in everything
                    if len(other.qualified) > len(one.qualified)
                    and other.qualified[: len(one.qualified)] == one.qualified
                )
            ),
        )
        for one in everything
        if one.qualified[-len(wanted) :] == wanted
    ]  # fmt: skip


def can_read(path: str) -> bool:
    """Return whether definitions can be found in a file of this name."""
    suffix = PurePosixPath(path).suffix.lower()
    return suffix in _PYTHON or _parser(suffix) is not None


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"\.|::|#", name) if part)


def _paths_with(checkout: Checkout, word: str, folder: str) -> Iterator[str]:
    """Yield the files of known languages below a folder that hold a word."""
    root = checkout.workspace.root
    endings = (*_PYTHON, *GRAMMARS)
    if checkout.workspace.common_dir is not None:
        where = ["HEAD"] if checkout.is_bare else []
        untracked = [] if checkout.is_bare else ["--untracked"]
        command = ["grep", "-l", "-z", "-I", "--fixed-strings", *untracked, "-e", word, *where, "--", folder or "."]
        try:
            output = git.run(root, *command, check=False, timeout_s=10)
        except GitError:
            return
        for token in output.split(b"\0"):
            path = os.fsdecode(token).removeprefix("HEAD:") if checkout.is_bare else os.fsdecode(token)
            if path.lower().endswith(endings):
                yield path
        return
    walked = 0
    for place, folders, names in os.walk(root / folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "node_modules"]
        for name in names:
            walked += 1
            if walked > _MAX_WALKED:
                return
            if name.lower().endswith(endings):
                yield (Path(place) / name).relative_to(root).as_posix()


def _content(checkout: Checkout, path: str) -> bytes:
    """Return the content of a file; nothing of one that is absent, leads out of the workspace, or is too large."""
    if checkout.is_bare:
        return (git.read_blob(checkout.workspace.root, "HEAD", path) or b"")[:MAX_FILE_BYTES]
    return checkout.read(path, max_bytes=MAX_FILE_BYTES) or b""


def _in_python(content: bytes) -> Iterator[_Found]:
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    yield from _walk_python(tree.body, ())


def _walk_python(body: Sequence[ast.stmt], outer: tuple[str, ...]) -> Iterator[_Found]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            kind = "class" if isinstance(node, ast.ClassDef) else "method" if outer else "function"
            name = (*outer, node.name)
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield _Found(name, kind, first, node.end_lineno or node.lineno)
            yield from _walk_python(node.body, name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    yield _Found((*outer, target.id), "variable", node.lineno, node.end_lineno or node.lineno)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for inner in ("body", "orelse", "finalbody"):
                yield from _walk_python(getattr(node, inner, []), outer)


def _parser(suffix: str) -> Callable[[bytes], Iterator[_Found]] | None:
    """Return the parser for a file suffix; None if no grammar is known or installed."""
    grammar = GRAMMARS.get(suffix)
    if grammar is None:
        return None
    try:
        from importlib import import_module

        from tree_sitter import Language, Parser

        package = import_module(f"tree_sitter_{'typescript' if grammar == 'tsx' else grammar}")
        # The one package with two grammars names them.
        make = getattr(package, f"language_{grammar}", None) or package.language
        parser = Parser(Language(make()))
    except (ImportError, AttributeError, ValueError, OSError):
        return None
    return lambda content: _walk(parser.parse(content).root_node)


def _walk(root: Any) -> Iterator[_Found]:
    """Yield every definition of a syntax tree, with the names around it. Not recursive: generated code nests deeply."""
    waiting: list[tuple[Any, tuple[str, ...]]] = [(root, ())]
    while waiting:
        node, outer = waiting.pop()
        around = outer
        if _DEFINES.fullmatch(node.type) and (name := _name_of(node)):
            around = (*outer, name)
            kind = node.type.partition("_")[0] if node.type != "variable_declarator" else "variable"
            yield _Found(around, kind, node.start_point[0] + 1, node.end_point[0] + 1)
        waiting += [(child, around) for child in reversed(node.named_children)]


def _name_of(node: Any) -> str | None:
    """Return the name that a definition gives: its `name`, the type that an `impl` is for, C's innermost declarator."""
    for field in ("name", "type" if node.type == "impl_item" else "declarator"):
        named = node.child_by_field_name(field)
        while named is not None and (inner := named.child_by_field_name("declarator")) is not None:
            named = inner
        if named is not None and named.child_count == 0 and named.text:
            return str(named.text.decode("utf-8", "replace"))
        if named is not None and named.type == "qualified_identifier" and named.text:
            return str(named.text.decode("utf-8", "replace")).rpartition("::")[2]
    return None
