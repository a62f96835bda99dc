"""Dependencies that a session added, removed or moved to another version, from edits of manifests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from nugget.models import Event, EventKind

MAX_TEXT = 400_000
"""Longer manifests are generated, so they are not read."""


class DependencyChange(NamedTuple):
    """A dependency that changed; `before` and `after` are versions, None where it is absent, empty for any version."""

    name: str
    before: str | None
    after: str | None
    event: Event
    ecosystem: str

    @property
    def summary(self) -> str:
        """The change in a line: `added zod ^3.22`, `removed left-pad`, `changed react from 17 to 18`."""
        if self.before is None:
            return f"added {self.name} {self.after or ''}".rstrip()
        if self.after is None:
            return f"removed {self.name}"
        return f"changed {self.name} from {self.before or 'any version'} to {self.after or 'any version'}"


_SPEC = r"([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?\s*((?:[<>=!~]=?=?\s*[\w.*+-]+\s*,?\s*)*)"
_REQUIREMENT = rf"^\s*{_SPEC}(?:;.*)?(?:\s+#.*)?$"
_PEP508 = rf"[\"']{_SPEC}(?:;[^\"']*)?[\"']\s*(?:,|\]|$)"
_JSON = (
    r'"(@?[\w.-]+(?:/[\w.-]+)?)"\s*:\s*"'
    r'([\^~<>=!]{0,2}\s*v?\d[\w.*+,<>=!~^|\s-]*|\*|latest|next|(?:workspace|file|link|npm|github|git[+:@]|https?)[:/][^"]*)"'
)
_TOML = (
    r"^\s*[\"']?([A-Za-z0-9][\w.-]*)[\"']?\s*=\s*(?:[\"']([\^~<>=*\d][^\"'\n]*)[\"']"
    r"|\{[^}\n]*?version\s*=\s*[\"']([^\"'\n]+)[\"']|\{[^}\n]*?(?:git|path|workspace)\s*=\s*([^,}\n]+))"
)
_GRADLE = (
    r"^\s*(?:api|implementation|compileOnly|runtimeOnly|\w*[tT]estImplementation|kapt|ksp|annotationProcessor|classpath"
    r"|testRuntimeOnly)\s*\(?\s*[\"']([\w.-]+:[\w.-]+)(?::([^\"']+))?[\"']"
)
MANIFESTS: tuple[tuple[str, str, str], ...] = (
    ("package.json", "npm", _JSON),
    ("pyproject.toml", "python", _PEP508),
    ("*requirements*.txt", "python", _REQUIREMENT),
    ("Cargo.toml", "rust", _TOML),
    ("go.mod", "go", r"^\s*(?:require\s+)?([\w-]+(?:\.[\w-]+)+(?:/[\w.~-]+)*)\s+(v\d\S*)"),
    ("Gemfile", "ruby", r"^\s*gem\s+[\"']([\w./-]+)[\"'](?:\s*,\s*[\"']([^\"']+)[\"'])?"),
    ("pom.xml", "java", r"<artifactId>\s*([^<\s]+)\s*</artifactId>(?:\s*<version>\s*([^<\s]+)\s*</version>)?"),
    ("build.gradle*", "java", _GRADLE),
)
"""File name (glob), ecosystem, and pattern of a dependency: its name, then its version in one of the other groups."""
_NO_NAMES = frozenset(
    "version node npm yarn pnpm engines packageManager name type private edition rust-version python requires-python "
    "target-version line-length minversion channel resolver opt-level".split()
)


def dependency_changes(events: Sequence[Event]) -> list[DependencyChange]:
    """Return every dependency that the session changed, in order, except those that it added and removed again."""
    first: dict[tuple[str, str], DependencyChange] = {}
    for event in events:
        for change in _changes_in(event):
            key = change.ecosystem, change.name.lower()
            known = first.get(key)
            first[key] = change if known is None else known._replace(after=change.after)
    return [change for change in first.values() if change.before != change.after]


def _changes_in(event: Event) -> Iterator[DependencyChange]:
    # When a whole file is written, nobody knows what it held before.
    if event.kind is not EventKind.FILE_EDIT or event.ok is False or not event.path or event.before is None:
        return
    name, after = event.path.replace("\\", "/").rpartition("/")[2], event.after or ""
    found = next((entry for entry in MANIFESTS if fnmatchcase(name, entry[0])), None)
    if found is None or len(event.before) + len(after) > MAX_TEXT:
        return
    _, ecosystem, pattern = found
    old, new = (_versions(pattern, text) for text in (event.before, after))
    for package in dict.fromkeys([*old, *new]):
        if old.get(package) != new.get(package):
            yield DependencyChange(package, old.get(package), new.get(package), event, ecosystem)


def _versions(pattern: str, text: str) -> dict[str, str]:
    """Return the dependencies (name -> version, empty for any) of a manifest, or of a part of one."""
    if pattern != _PEP508:
        return _pairs(pattern, text)
    section, *rest = re.split(r"^\s*\[([\w.\"'-]+)\]\s*$", text, flags=re.MULTILINE)
    found: dict[str, str] = {}
    for name, part in [("", section), *zip(rest[::2], rest[1::2], strict=True)]:
        if "dependencies" in name or not name.startswith("tool."):
            listed = _pairs(_PEP508, part).items()
            found |= {key: version for key, version in listed if version or "dependenc" in part}
        if "dependencies" in name or not name:  # Poetry's tables
            found |= _pairs(_TOML, part)
    return found


def _pairs(pattern: str, text: str) -> dict[str, str]:
    matches = (match.groups(default="") for match in re.finditer(pattern, text, re.MULTILINE))
    return {name: " ".join("".join(rest).split()).rstrip(", ") for name, *rest in matches if name not in _NO_NAMES}
