"""Find the files that an agent's path or shell command refers to, and what they define (`ast`, tree-sitter)."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import pairwise
from pathlib import Path, PurePosixPath
from textwrap import dedent
from typing import Any, NamedTuple

from nugget.extraction.proposals import LANGUAGES
from nugget.infra.files import is_inside
from nugget.infra.workspace import Workspace, relative_path
from nugget.models import Session
from nugget.redaction import is_excluded
from nugget.text import MAX_HASHED_CHARS


@dataclass(slots=True)
class Places:
    """The checkouts of a workspace, in which a path that an agent names is looked up.

    `roots` are the checkouts that the session worked in, `others` those of other workspaces that may lie inside them,
    and `excluded` globs of files to leave out.
    """

    session: Session
    roots: Sequence[Workspace]
    excluded: Sequence[str] = ()
    others: Sequence[Workspace] = ()
    known: dict[str, str | None] = field(default_factory=dict)
    functions: dict[str, tuple[str, list[Found]]] = field(default_factory=dict)

    @property
    def repo(self) -> str | None:
        """The identity of the workspace."""
        return self.roots[0].identity if self.roots else None

    def find(self, path: str) -> str | None:
        """Return the path relative to the root of its checkout, or None if it is outside or excluded."""
        if path not in self.known:
            self.known[path] = next(self._inside(path), None)
        return self.known[path]

    def is_file(self, path: str) -> bool:
        """Return whether a path of the workspace is an existing file."""
        return any(file_inside(root.root, path) is not None for root in self.roots)

    def symbol_at(self, path: str, text: str) -> str:
        """Return the function or class that contains a text, else the only one that the text defines."""
        if path not in self.functions:
            contents = (read_inside(root.root, path) for root in self.roots)
            content = next((one for one in contents if one is not None), b"").decode("utf-8", "replace")
            self.functions[path] = content, functions_in(path, content)
        content, functions = self.functions[path]
        lines = text.strip("\n").rstrip()
        first = content.count("\n", 0, content.find(lines)) + 1 if lines and lines in content else 0
        last = first + lines.count("\n")
        if around := [names for names, _, begin, end in functions if begin <= first and last <= end]:
            return around[-1][-1]
        named = {names[0] for names, *_ in functions_in(path, dedent(text))}
        return named.pop() if len(named) == 1 else ""

    def _inside(self, path: str) -> Iterator[str | None]:
        folder = self.session.cwd
        for root in self.roots:
            if inside := relative_path(root, path, folder=folder):
                nested = (one for one in self.others if one.root.is_relative_to(root.root))
                is_foreign = any(relative_path(one, path, folder=folder) for one in nested)
                yield None if is_foreign or is_excluded(str(root.root / inside), self.excluded) else inside


def file_inside(root: Path | None, path: str) -> Path | None:
    """Return the file at a path below a folder, or None if it is missing or a link leads outside."""
    if root is None:
        return None
    file = root / path
    with suppress(OSError):
        return file if file.is_file() and is_inside(file, root) else None
    return None


def read_inside(root: Path | None, path: str, *, max_bytes: int = MAX_HASHED_CHARS) -> bytes | None:
    """Return the content of a file below a folder, or None if it is missing or larger."""
    file = file_inside(root, path)
    with suppress(OSError):
        return file.read_bytes() if file is not None and file.stat().st_size <= max_bytes else None
    return None


_MAX_COMMAND_CHARS = 20_000
_WORTH_READING = re.compile(r"\b(?:rm|mv|cp|tee|unlink|sed|gsed|perl)\b|>")
_HERE = re.compile(r"<<(?P<dash>-?)\s*(?P<quote>['\"]?)(?P<mark>[A-Za-z_]\w*)(?P=quote)")
_REDIRECTIONS = frozenset(("&>", "&>>", ">", ">>", ">|"))
_BODY = "\0"
"""The prefix of the word that stands for a here-document; its number follows."""
_UNKNOWN = re.compile(r"[$`*?\[\]{}]|^~[^/]|\n|^-|^/dev/|^$|^\d$|^[<>&|]+$")
"""Words that are not file names: those that the shell expands, operators and flags."""
_PREFIXES = frozenset("sudo command env time nohup exec builtin if then else elif do while until ! {".split())


class ShellChange(NamedTuple):
    """A file that a command may change; `action` is `write`, `delete` or `move` (from `previous`).

    `content` is set if a here-document gives the new content of the file.
    """

    action: str
    path: str
    previous: str | None = None
    content: str | None = None


def shell_changes(command: str) -> list[ShellChange]:
    """Return the files that a command line may change, in order; none if it cannot be parsed."""
    command = command.replace(_BODY, "")
    text, bodies = _without_bodies(command) if _WORTH_READING.search(command) else ("", [])
    if len(text) > _MAX_COMMAND_CHARS:
        return []
    reader = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars="();<>|&\n")
    reader.whitespace, reader.whitespace_split, reader.commenters = " \t\r", True, ""
    found, folder, part = list[ShellChange](), PurePosixPath(), list[str]()
    try:
        words = [*reader, ";"]
    except ValueError:  # a quote is not closed
        return []
    for word in words:
        if word in _REDIRECTIONS or not word or set(word) - set("();|&\n"):
            part.append(word)
            continue
        while part and (re.match(r"[A-Za-z_]\w*=", part[0]) or part[0] in _PREFIXES):
            part = part[1:]
        if part[:1] == ["cd"] and len(part) == 2:
            folder /= part[1]
        elif part:
            found += [
                one._replace(path=str(folder / one.path), previous=one.previous and str(folder / one.previous))
                for one in _changes(part, bodies)
            ]
        part = []
    return found


def _without_bodies(command: str) -> tuple[str, list[str | None]]:
    """Return the command with here-documents replaced by their numbers, and their bodies (None if not literal)."""
    bodies: list[str | None] = []
    position, parts = 0, []
    while found := _HERE.search(command, position):
        line_end = command.find("\n", found.end())
        end_mark = re.compile(rf"^\t*{found['mark']}[ \t]*$", re.MULTILINE)
        if line_end < 0 or (end := end_mark.search(command, line_end + 1)) is None:
            break
        body = command[line_end + 1 : end.start()]
        is_literal = not found["dash"] and (found["quote"] or not re.search(r"[$`\\]", body))
        parts += [command[position : found.start()], f" {_BODY}{len(bodies)} ", command[found.end() : line_end]]
        bodies.append(body if is_literal else None)
        position = end.end()
    return "".join([*parts, command[position:]]), bodies


def _changes(part: list[str], bodies: list[str | None]) -> Iterator[ShellChange]:
    """Yield the files that one simple command changes or writes to."""
    body = next((bodies[int(word[1:])] for word in part if word.startswith(_BODY)), None)
    targets = [word for before, word in pairwise(part) if before in _REDIRECTIONS and not _UNKNOWN.search(word)]
    program, *names = [word for word in part if not word.startswith(_BODY)] or [""]
    program = program.rpartition("/")[2]
    if program == "git" and names[:1] in (["rm"], ["mv"]) and "--cached" not in names:
        program, *names = names
    names = [name for name in names if not _UNKNOWN.search(name)]
    if program in ("rm", "unlink"):
        yield from (ShellChange("delete", name) for name in names)
    elif program == "mv" and len(names) == 2:
        yield ShellChange("move", names[1].removesuffix("/."), names[0])
    else:
        is_whole = names == targets if program == "cat" and ">" in part else program == "tee" and "-a" not in part
        for name in names if program in ("cp", "tee", "sed", "gsed", "perl") else targets:
            yield ShellChange("write", name, content=body if is_whole else None)


_GENERATED = re.compile(
    r"(?:^|/)(?:node_modules|vendor|dist|build|out|target|\.next|__pycache__|__snapshots__|coverage|\.git)/"
    r"|(?:^|/)(?:package-lock\.json|[\w.-]*\.lock|go\.sum|pnpm-lock\.yaml|bun\.lockb|[\w.-]+\.min\.(?:js|css))$"
    r"|\.(?:snap|map|pyc|log|png|jpe?g|gif|ico|pdf|zip|gz|svg)$|_pb2(?:_grpc)?\.py$|\.pb\.go$|\.generated\.\w+$"
)
_TEST = re.compile(
    r"(?:^|/)(?:tests?|spec|__tests__|testdata)/|(?:^|/)test_[^/]+$|[._-](?:test|spec)\.\w+$|_test\.\w+$"
)


def is_generated(path: str) -> bool:
    """Return whether a file is generated, so that nobody asks why it is as it is."""
    return _GENERATED.search(path) is not None


def is_test(path: str) -> bool:
    """Return whether a file holds tests."""
    return _TEST.search(path) is not None


_PARSED = ("python", "javascript", "typescript", "go", "rust", "java", "ruby", "c", "cpp")
GRAMMARS = {ending: name for ending, name in LANGUAGES.items() if name in _PARSED} | {".tsx": "tsx"}
"""The grammar for each file extension: of `ast` for Python, of tree-sitter for others."""
_DEFINES = re.compile(
    r"(function|method|class|interface|struct|enum|trait|union|module|type|impl|mod|const|static|macro|record"
    r"|type_alias|abstract_class|generator_function|singleton_method|constructor|annotation_type|public_field|field)"
    r"_?(declaration|definition|item|specifier|spec)?|variable_declarator"
)
_VALUES = ("variable", "const", "static", "field", "public", "mod", "module")
"""Kinds of definitions that contain no code."""

Found = tuple[tuple[str, ...], str, int, int]
"""The names of a definition and those that enclose it, its kind, and its first and last line."""


def functions_in(path: str, content: str) -> list[Found]:
    """Return the functions, classes and types in a file's content, each after the one that encloses it."""
    read = definition_reader(path)
    return [one for one in read(content.encode()) if one[1] not in _VALUES] if read else []


def definition_reader(path: str) -> Callable[[bytes], Iterator[Found]] | None:
    """Return the parser for a file, or None if no grammar is known or installed."""
    grammar = GRAMMARS.get(PurePosixPath(path).suffix.lower())
    if grammar is None or grammar == "python":
        return _in_python if grammar else None
    try:
        from tree_sitter import Language, Parser

        package = import_module(f"tree_sitter_{'typescript' if grammar == 'tsx' else grammar}")
        # Only the TypeScript package has two grammars, and names them.
        make = getattr(package, f"language_{grammar}", None) or package.language
        parser = Parser(Language(make()))
    except (ImportError, AttributeError, ValueError, OSError):
        return None
    return lambda content: _in_tree(parser.parse(content).root_node)


def _in_python(content: bytes) -> Iterator[Found]:
    try:
        yield from _in_body(ast.parse(content).body, ())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return


def _in_body(body: Sequence[ast.stmt], outer: tuple[str, ...]) -> Iterator[Found]:
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


def _in_tree(root: Any) -> Iterator[Found]:
    """Yield every definition in a syntax tree, without recursion, since generated code nests deeply."""
    waiting: list[tuple[Any, tuple[str, ...]]] = [(root, ())]
    while waiting:
        node, names = waiting.pop()
        if _DEFINES.fullmatch(node.type) and (name := _name_of(node)):
            names = (*names, name)
            kind = node.type.partition("_")[0] if node.type != "variable_declarator" else "variable"
            yield names, kind, node.start_point[0] + 1, node.end_point[0] + 1
        waiting += [(child, names) for child in reversed(node.named_children)]


def _name_of(node: Any) -> str | None:
    """Return the name of a definition: its `name`, the type of an `impl`, or the innermost declarator in C."""
    for key in ("name", "type" if node.type == "impl_item" else "declarator"):
        named = node.child_by_field_name(key)
        while named is not None and (inner := named.child_by_field_name("declarator")) is not None:
            named = inner
        if named is not None and named.text and (named.child_count == 0 or named.type == "qualified_identifier"):
            return str(named.text.decode("utf-8", "replace")).rpartition("::")[2]
    return None
