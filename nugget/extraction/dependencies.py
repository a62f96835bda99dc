"""Dependencies that a session added, removed or moved to another version, from edits of manifests and from commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from nugget.models import Event, EventKind

MAX_TEXT = 400_000
"""A longer manifest is generated; it is not looked into."""

Reader = Callable[[str], dict[str, str]]
"""Reads the dependencies (name -> version, empty if none is given) of a manifest, or of a part of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyChange:
    """A dependency that changed: `before` and `after` are versions, None if it was or is absent, empty for any.

    `manifest` is the path as the agent named it, None if a command did it.
    """

    name: str
    before: str | None
    after: str | None
    event: Event
    manifest: str | None = None
    ecosystem: str = ""

    @property
    def summary(self) -> str:
        """The change in a line: `added zod ^3.22`, `removed left-pad`, `changed react from 17 to 18`."""
        if self.before is None:
            return f"added {self.name} {self.after or ''}".rstrip()
        if self.after is None:
            return f"removed {self.name}"
        return f"changed {self.name} from {self.before or 'any version'} to {self.after or 'any version'}"


_VERSION = r"[\^~<>=!]{0,2}\s*v?\d[\w.*+,<>=!~^|\s-]*"
_JSON_LINE = re.compile(
    rf'"(@?[\w.-]+(?:/[\w.-]+)?)"\s*:\s*"({_VERSION}|\*|latest|next|workspace:[^"]*|file:[^"]*|link:[^"]*|npm:[^"]*'
    r'|git[+:@][^"]*|github:[^"]*|https?://[^"]*\.(?:tgz|git)[^"]*)"'
)
_JSON_KEYS = frozenset("version node npm yarn pnpm engines packageManager name type private".split())
_REQUIREMENT = re.compile(
    r"^\s*([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?\s*((?:[<>=!~]=?=?\s*[\w.*+-]+\s*,?\s*)*)(?:;.*)?(?:\s+#.*)?$",
    re.MULTILINE,
)
_PEP508 = re.compile(
    r"[\"']([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?\s*((?:[<>=!~]=?=?\s*[\w.*+-]+\s*,?\s*)*)(?:;[^\"']*)?[\"']\s*(?:,|\]|$)",
    re.M,
)
_TOML_LINE = re.compile(
    r"^\s*[\"']?([A-Za-z0-9][\w.-]*)[\"']?\s*=\s*(?:[\"']([\^~<>=*\d][^\"'\n]*)[\"']"
    r"|\{[^}\n]*?version\s*=\s*[\"']([^\"'\n]+)[\"']"
    r"|\{[^}\n]*?(?:git|path|workspace)\s*=\s*([^,}\n]+))",
    re.MULTILINE,
)
_TOML_KEYS = frozenset(
    "version edition rust-version python requires-python target-version line-length minversion name channel".split()
)
_GO = re.compile(r"^\s*(?:require\s+)?([\w-]+(?:\.[\w-]+)+(?:/[\w.~-]+)*)\s+(v\d\S*)", re.MULTILINE)
_GEM = re.compile(r"^\s*gem\s+[\"']([\w./-]+)[\"'](?:\s*,\s*[\"']([^\"']+)[\"'])?", re.MULTILINE)
_POM = re.compile(r"<artifactId>\s*([^<\s]+)\s*</artifactId>(?:\s*<version>\s*([^<\s]+)\s*</version>)?")
_GRADLE = re.compile(
    r"^\s*(?:api|implementation|compileOnly|runtimeOnly|testImplementation|androidTestImplementation|kapt|ksp"
    r"|annotationProcessor|classpath|testRuntimeOnly)\s*\(?\s*[\"']([\w.-]+:[\w.-]+)(?::([^\"']+))?[\"']",
    re.MULTILINE,
)


def _pairs(pattern: re.Pattern[str], *, without: frozenset[str] = frozenset()) -> Reader:
    def read(text: str) -> dict[str, str]:
        found = (match.groups(default="") for match in pattern.finditer(text))
        return {name: " ".join("".join(rest).split()).rstrip(", ") for name, *rest in found if name not in without}

    return read


def _python(text: str) -> dict[str, str]:
    """Read pyproject.toml: PEP 508 texts in lists, and Poetry's `name = "version"` lines."""
    found: dict[str, str] = {}
    section, *rest = re.split(r"^\s*\[([\w.\"'-]+)\]\s*$", text, flags=re.MULTILINE)
    for name, part in [("", section), *zip(rest[::2], rest[1::2], strict=True)]:
        if not name.startswith("tool.") or "dependencies" in name:
            found |= {key: version for key, version in _pairs(_PEP508)(part).items() if version or "dependenc" in part}
        if not name or "dependencies" in name:
            found |= _pairs(_TOML_LINE, without=_TOML_KEYS)(part)
    return {name: version for name, version in found.items() if name.lower() != "python"}


MANIFESTS: tuple[tuple[str, str, Reader], ...] = (
    ("package.json", "npm", _pairs(_JSON_LINE, without=_JSON_KEYS)),
    ("pyproject.toml", "python", _python),
    ("*requirements*.txt", "python", _pairs(_REQUIREMENT)),
    ("Cargo.toml", "rust", _pairs(_TOML_LINE, without=_TOML_KEYS)),
    ("go.mod", "go", _pairs(_GO)),
    ("Gemfile", "ruby", _pairs(_GEM)),
    ("pom.xml", "java", _pairs(_POM)),
    ("build.gradle", "java", _pairs(_GRADLE)),
    ("build.gradle.kts", "java", _pairs(_GRADLE)),
)
"""File name (glob), ecosystem, and how dependencies are read from it."""

_COMMAND = re.compile(
    r"(?:^|[;&|(]\s*|\b(?:sudo|cd \S+ &&)\s+)(?P<program>npm|pnpm|yarn|bun|pip3?|python3? -m pip|uv pip|uv"
    r"|poetry|cargo"
    r"|go|bundle|gem|composer|dotnet)[ \t]+(?P<verb>install|i|add|get|require|remove|uninstall|rm"
    r"|un)\b(?P<rest>[^\n;&|]*)"
)
_PACKAGE = re.compile(
    r"(?P<name>@?[A-Za-z][\w.-]*(?:/[\w.~-]+)*)(?:\[[\w,-]+\])?"
    r"(?:@|(?=[<>=!~]))?(?P<version>(?<=@)[\w.^~*<>=-]+|[<>=!~]=?=?[\w.^~*<>=-]+)?"
)
_ECOSYSTEMS = {
    "npm": "npm", "pnpm": "npm", "yarn": "npm", "bun": "npm", "cargo": "rust", "go": "go", "bundle": "ruby",
    "gem": "ruby", "composer": "php", "dotnet": "dotnet",
}  # fmt: skip


def dependency_changes(events: Sequence[Event], outputs: Mapping[str, Event]) -> list[DependencyChange]:
    """Return every dependency that the session changed, in order, without those added and taken out again.

    `outputs` are the outputs of commands by call id: only a command that went well changes anything.
    """
    first: dict[tuple[str, str], DependencyChange] = {}
    for event in events:
        output = outputs.get(event.call_id or "")
        if event.kind is EventKind.COMMAND and not (output and output.ok):
            continue
        for change in _of_command(event) if event.kind is EventKind.COMMAND else _of_edit(event):
            key = change.ecosystem, change.name.lower()
            known = first.get(key)
            if known is None or (known.manifest is None and change.manifest is not None):
                first[key] = change  # If the command came first, the manifest says more.
            else:
                first[key] = replace(known, after=change.after, manifest=known.manifest or change.manifest)
    return [change for change in first.values() if change.before != change.after]


def _of_edit(event: Event) -> Iterator[DependencyChange]:
    # Of a whole file that is written nobody knows what it held before.
    if event.kind is not EventKind.FILE_EDIT or event.ok is False or not event.path or event.before is None:
        return
    name, after = event.path.replace("\\", "/").rpartition("/")[2], event.after or ""
    found = next((entry for entry in MANIFESTS if fnmatchcase(name, entry[0])), None)
    if found is None or len(event.before) + len(after) > MAX_TEXT:
        return
    old, new = found[2](event.before), found[2](after)
    for package in dict.fromkeys([*old, *new]):
        if old.get(package) != new.get(package):
            yield DependencyChange(
                name=package, before=old.get(package), after=new.get(package), event=event, manifest=event.path,
                ecosystem=found[1],
            )  # fmt: skip


def _of_command(event: Event) -> Iterator[DependencyChange]:
    for match in _COMMAND.finditer(event.text[:20_000]):
        program, verb, words = match["program"], match["verb"], match["rest"].split()
        is_tool = verb == "install" and program in ("go", "cargo", "uv", "bundle")
        if is_tool or {"-g", "--global", "-r", "--requirement", "-e"} & set(words):
            continue
        for found in filter(None, (_PACKAGE.fullmatch(word.strip("'\"")) for word in words)):
            name, version = found["name"], found["version"] or ""
            is_removed = verb in ("remove", "uninstall", "rm", "un")
            yield DependencyChange(
                name=name, before=version if is_removed else None, after=None if is_removed else version, event=event,
                ecosystem=_ECOSYSTEMS.get(program, "python"),
            )  # fmt: skip
