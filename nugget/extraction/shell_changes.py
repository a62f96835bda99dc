"""Find the files that a shell command would change from its words: rm, mv, cp, sed -i, tee, `>`, here-documents.

Nothing is executed and nothing expanded: a word with a variable or a pattern names no file. Callers verify whether the
change was really made.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

_MAX_CHARS = 20_000
"""Longest command that is read, here-documents aside."""
_WORTH_READING = re.compile(r"\b(?:rm|mv|cp|tee|unlink|sed|gsed|perl)\b|>")
_HERE = re.compile(r"<<(?P<dash>-?)\s*(?P<quote>['\"]?)(?P<mark>[A-Za-z_]\w*)(?P=quote)")
_REDIRECTIONS = {">": "write", ">|": "write", ">>": "change", "&>": "write", "&>>": "change"}
_UNKNOWN = re.compile(r"[$`*?\[\]{}]|^~[^/]|\n|^-$|^/dev/|^$")
_PREFIXES = frozenset("sudo command env time nohup exec builtin if then else elif do while until ! {".split())
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
_MASKED = {char: chr(0xE000 + place) for place, char in enumerate("();<>|&\n")}
"""Stand-ins for operators inside quotes, so that the lexer leaves them alone."""
_MASK, _UNMASK = str.maketrans(_MASKED), str.maketrans({mask: char for char, mask in _MASKED.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellChange:
    """A file that a command names as what it changes. `action` is `write`, `change`, `delete` or `move`.

    A moved file was at `previous` before. `content` is set if a here-document tells what the file holds afterwards.
    """

    action: str
    path: str
    previous: str | None = None
    content: str | None = None


def shell_changes(command: str) -> list[ShellChange]:
    """Return the files that a command line changes by what it says, in its order; none if it cannot be read."""
    if not _WORTH_READING.search(command):
        return []
    text, bodies = _without_bodies(command)
    if len(text) > _MAX_CHARS:
        return []
    masked = _QUOTED.sub(lambda found: found[0].translate(_MASK), text.replace("\\\n", " "))
    reader = shlex.shlex(masked, posix=True, punctuation_chars="();<>|&\n")
    reader.whitespace, reader.whitespace_split, reader.commenters = " \t\r", True, ""
    try:
        words = list(reader)
    except ValueError:  # quotes do not close
        return []
    found: list[ShellChange] = []
    folder = PurePosixPath()
    for part in _commands(words):
        if part[0] == "cd" and len(part) == 2:
            folder /= part[1].translate(_UNMASK)
            continue
        for one in _changes(part, bodies):
            if not _UNKNOWN.search(one.path) and not (one.previous and _UNKNOWN.search(one.previous)):
                previous = one.previous and str(folder / one.previous)
                found.append(replace(one, path=str(folder / one.path), previous=previous))
    return found


def _without_bodies(command: str) -> tuple[str, list[str | None]]:
    """Return the command with here-documents replaced by their numbers, and their bodies, None if not literal."""
    bodies: list[str | None] = []
    position, parts = 0, []
    while found := _HERE.search(command, position):
        line_end = command.find("\n", found.end())
        end_mark = re.compile(rf"^\t*{found['mark']}[ \t]*$", re.MULTILINE)
        if line_end < 0 or (end := end_mark.search(command, line_end + 1)) is None:
            break
        body = command[line_end + 1 : end.start()]
        is_literal = not found["dash"] and (found["quote"] or not re.search(r"[$`\\]", body))
        parts += [command[position : found.start()], f" <<< {len(bodies)} ", command[found.end() : line_end]]
        bodies.append(body if is_literal else None)
        position = end.end()
    return "".join([*parts, command[position:]]), bodies


def _commands(words: list[str]) -> Iterator[list[str]]:
    """Yield the simple commands of a line, without variables and `sudo` in front."""
    part: list[str] = []
    for word in [*words, ";"]:
        if word in _REDIRECTIONS or not word or set(word) - set("();|&\n"):
            part.append(word)
            continue
        while part and (re.match(r"[A-Za-z_]\w*=", part[0]) or part[0] in _PREFIXES):
            part = part[1:]
        if part:
            yield part
        part = []


def _changes(part: list[str], bodies: list[str | None]) -> Iterator[ShellChange]:
    plain: list[str] = []
    written: list[tuple[str, str]] = []
    body: str | None = None
    words = iter(part)
    for word in words:
        if word == "<<<":
            number = next(words, "")
            body = bodies[int(number)] if number.isdecimal() and int(number) < len(bodies) else None
        elif word in _REDIRECTIONS:
            target = next(words, "").translate(_UNMASK)
            if plain and plain[-1] == "2":
                plain.pop()
            elif not target.startswith("&"):
                written.append((_REDIRECTIONS[word], target))
        elif word in ("<", ">&", "<&", "<>", "<<"):
            next(words, None)
        else:
            plain.append(word.translate(_UNMASK))
    if plain:
        yield from _of_program(plain, body)
        names = [word for word in plain[1:] if not word.startswith("-")]
        for action, path in written:
            is_whole = plain[0] == "cat" and not names and action == "write"
            yield ShellChange(action=action, path=path, content=body if is_whole else None)


def _of_program(plain: list[str], body: str | None) -> Iterator[ShellChange]:
    program, rest = plain[0].rpartition("/")[2], plain[1:]
    if program == "git" and rest and rest[0] in ("rm", "mv") and "--cached" not in rest:
        program, rest = rest[0], rest[1:]
    names = [word for word in rest if not word.startswith("-")]
    if program in ("rm", "unlink"):
        yield from (ShellChange(action="delete", path=name) for name in names)
    elif program in ("mv", "cp") and len(names) == 2:
        source, target = names
        if target.endswith(("/", "/.")) or target == ".":
            target = f"{target.rstrip('/')}/{PurePosixPath(source).name}"
        yield ShellChange(action="move" if program == "mv" else "write", path=target,
                          previous=source if program == "mv" else None)  # fmt: skip
    elif program == "tee":
        appends = "-a" in rest or "--append" in rest
        for name in names:
            yield ShellChange(action="change" if appends else "write", path=name, content=None if appends else body)
    elif program in ("sed", "gsed", "perl") and any(re.match(r"-(?:\w*i|-in-place)", word) for word in rest):
        edited = names[-1:] if program == "perl" else names[1:]
        yield from (ShellChange(action="change", path=name) for name in edited)
