"""Which files a shell command would change, read from its words: rm, mv, cp, sed -i, tee, `>`, and here-documents.

Nothing is executed and nothing expanded: a word with a variable or a pattern names no file. Whether the change was
really made is for others to verify.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import PurePosixPath

MAX_COMMAND_CHARS = 200_000
_WORTH_READING = re.compile(r"\b(?:rm|mv|cp|tee|unlink|touch|sed|perl|patch)\b|>")
_HERE = re.compile(r"<<(?P<dash>-?)\s*(?P<quote>['\"]?)(?P<mark>[A-Za-z_]\w*)(?P=quote)")
_ENDS = frozenset(["&&", "||", ";", "|", "&", "|&", ";;", "(", ")", "\n"])
_REDIRECTIONS = {">": False, ">|": False, ">>": True, "&>": False, "&>>": True}
_UNKNOWN = re.compile(r"[$`*?\[\]{}]|^~[^/]|\n")
_WRAPPERS = frozenset("sudo command env time nohup exec builtin if then else elif do while until ! {".split())
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
_MASKED = {char: chr(0xE000 + place) for place, char in enumerate("();<>|&\n")}
"""What operators inside quotes are read as, so that the lexer leaves them alone."""
_MASK, _UNMASK = str.maketrans(_MASKED), str.maketrans({mask: char for char, mask in _MASKED.items()})
_VARIABLE = re.compile(r"[A-Za-z_]\w*=")


class ShellAction(StrEnum):
    """What a command does to a file."""

    WRITE = "write"
    CHANGE = "change"
    DELETE = "delete"
    MOVE = "move"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellChange:
    """A file that a command names as what it changes; a moved one was at `previous` before.

    `content` is what a here-document with a quoted mark writes, so what the file holds afterwards.
    """

    action: ShellAction
    path: str
    previous: str | None = None
    content: str | None = None


def shell_changes(command: str) -> list[ShellChange]:
    """The files that a command line changes by what it says, in its order; nothing for one that cannot be read."""
    if len(command) > MAX_COMMAND_CHARS or not _WORTH_READING.search(command):
        return []
    text, bodies = _without_bodies(command)
    if len(text) > 20_000:
        return []
    try:
        words = list(_words(text))
    except ValueError:
        return []
    found: list[ShellChange] = []
    folder = PurePosixPath()
    for part in _commands(words):
        if part[0] == "cd" and len(part) == 2:
            folder /= part[1].translate(_UNMASK)
            continue
        for change in _changes(part, bodies):
            path = str(folder / change.path)
            found.append(replace(change, path=path, previous=change.previous and str(folder / change.previous)))
    return found


def _without_bodies(command: str) -> tuple[str, list[str | None]]:
    """The command without the bodies of here-documents, each replaced by its number; None where bodies expand."""
    bodies: list[str | None] = []
    position, parts = 0, []
    while found := _HERE.search(command, position):
        line_end = command.find("\n", found.end())
        if line_end < 0:
            break
        indent = r"\t*" if found["dash"] else ""
        end = re.compile(rf"^{indent}{re.escape(found['mark'])}[ \t]*$", re.MULTILINE).search(command, line_end + 1)
        if end is None:
            break
        body = command[line_end + 1 : end.start()]
        if found["dash"]:
            body = re.sub(r"^\t+", "", body, flags=re.MULTILINE)
        literal = bool(found["quote"]) or not re.search(r"[$`\\]", body)
        parts += [command[position : found.start()], f" <<< {len(bodies)} ", command[found.end() : line_end]]
        bodies.append(body if literal else None)
        position = end.end()
    return "".join([*parts, command[position:]]), bodies


def _words(text: str) -> Iterator[str]:
    """The words and operators of a command line. Raises ValueError where quotes do not close."""
    masked = _QUOTED.sub(lambda found: found[0].translate(_MASK), text.replace("\\\n", " "))
    reader = shlex.shlex(masked, posix=True, punctuation_chars="();<>|&\n")
    reader.whitespace = " \t\r"
    reader.whitespace_split = True
    reader.commenters = ""
    yield from reader


def _commands(words: list[str]) -> Iterator[list[str]]:
    """The simple commands of a line, without variables and `sudo` in front."""
    part: list[str] = []
    for word in [*words, ";"]:
        if word in _ENDS or (word and set(word) <= set("();|&\n") and word not in _REDIRECTIONS):
            while part and (_VARIABLE.match(part[0]) or part[0] in _WRAPPERS):
                part = part[1:]
            if part:
                yield part
            part = []
        else:
            part.append(word)


def _changes(part: list[str], bodies: list[str | None]) -> Iterator[ShellChange]:
    plain, written, body = _redirections(part, bodies)
    if not plain:
        return
    program, rest = plain[0].rpartition("/")[2], plain[1:]
    if program == "git" and rest and rest[0] in ("rm", "mv"):
        program, rest = rest[0], rest[1:]
        if "--cached" in rest:
            return
    names = [word for word in rest if not word.startswith("-") or word == "-"]
    if program in ("rm", "unlink"):
        yield from _each(ShellAction.DELETE, names)
    elif program == "mv" and len(names) == 2:
        yield from _moved(names[0], names[1])
    elif program == "cp" and len(names) == 2:
        yield from _each(ShellAction.WRITE, [_target(names[0], names[1])])
    elif program == "tee":
        appends = "-a" in rest or "--append" in rest
        for change in _each(ShellAction.CHANGE if appends else ShellAction.WRITE, names):
            yield replace(change, content=None if appends else body)
    elif program in ("sed", "perl", "gsed") and any(re.match(r"-(?:\w*i|-in-place)", word) for word in rest):
        yield from _each(ShellAction.CHANGE, [name for name in names[1:] if name] if program != "perl" else names[-1:])
    for path, appends in written:
        content = body if program == "cat" and not names and not appends else None
        action = ShellAction.CHANGE if appends else ShellAction.WRITE
        yield from (replace(change, content=content) for change in _each(action, [path]))


def _redirections(part: list[str], bodies: list[str | None]) -> tuple[list[str], list[tuple[str, bool]], str | None]:
    """A command's words without redirections, (path, appends) of each file that it prints to, and what it is fed."""
    plain: list[str] = []
    written: list[tuple[str, bool]] = []
    body: str | None = None
    words = iter(part)
    for word in words:
        if word == "<<<":
            number = next(words, "")
            body = bodies[int(number)] if number.isdecimal() and int(number) < len(bodies) else None
        elif word in _REDIRECTIONS:
            target = next(words, "")
            if plain and plain[-1] == "2" and word in (">", ">>"):
                plain.pop()
            elif target and not target.startswith("&"):
                written.append((target, _REDIRECTIONS[word]))
        elif word in ("<", ">&", "<&", "<>", "<<"):
            next(words, None)
        else:
            plain.append(word)
    unmasked = [(path.translate(_UNMASK), appends) for path, appends in written]
    return [word.translate(_UNMASK) for word in plain], unmasked, body


def _moved(source: str, target: str) -> Iterator[ShellChange]:
    target = _target(source, target)
    if not _UNKNOWN.search(source) and not _UNKNOWN.search(target):
        yield ShellChange(action=ShellAction.MOVE, path=target, previous=source)


def _target(source: str, target: str) -> str:
    """Where a file lands that is moved or copied to `target`, which may be named as a folder."""
    return (
        f"{target.rstrip('/')}/{PurePosixPath(source).name}"
        if target.endswith(("/", "/.")) or target == "."
        else target
    )


def _each(action: ShellAction, names: list[str]) -> Iterator[ShellChange]:
    for name in names:
        if name and name != "-" and not name.startswith("/dev/") and not _UNKNOWN.search(name):
            yield ShellChange(action=action, path=name)
