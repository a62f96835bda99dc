"""The files of what is imported: what is text, small enough and not excluded, with a reason for all else."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nugget.errors import UsageError
from nugget.importing.databases import DATABASE_NAMES, export_of, is_database
from nugget.importing.notes import LeftOut
from nugget.infra.brain_in_use import is_brain
from nugget.redaction.paths import is_excluded
from nugget.sources.ignore_files import IGNORE_FILES, Rules, is_ignored, rules_above, rules_in
from nugget.text import counted

MAX_NOTE_BYTES = 1_000_000
MAX_EXPORT_BYTES = 50_000_000
MAX_FILES = 50_000
"""After so many files the walk stops, and says so."""
MAX_DEPTH = 40

NOTE_ENDINGS = (".md", ".markdown", ".mdc")
EXPORT_ENDINGS = (".json", ".jsonl")
DATABASE_ENDINGS = (".db", ".sqlite", ".sqlite3")
_NAMED = (".cursorrules", *DATABASE_NAMES)
_HIDDEN_FOLDERS = (".cursor",)
_SKIPPED_FOLDERS = frozenset(
    "node_modules vendor venv site-packages target dist build __pycache__ templates template _templates".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A file to be read. `path` starts with the name of what is imported, and has `/`."""

    path: str
    file: Path


def find_files(root: Path, *, exclude: Sequence[str] = ()) -> Iterator[FoundFile | LeftOut]:
    """Every file that may hold notes, in the order of their paths, and what was passed over for a reason.

    Links are not followed, hidden folders and those of tools and templates not entered, and what ignore files say
    is honoured, as in canon. Raises UsageError where `root` is no file or folder.
    """
    if root.is_file():
        yield FoundFile(path=f"{root.resolve().parent.name}/{root.name}", file=root)
        return
    if not root.is_dir():
        raise UsageError(f"{root} {'is no file or folder' if os.path.lexists(root) else 'does not exist'}.")
    looked_at = ignored = 0
    refused: list[OSError] = []
    rules_of: dict[Path, tuple[Rules, ...]] = {root: rules_above(root.resolve())}
    for folder, folders, names in os.walk(root, onerror=refused.append):
        below = Path(folder).relative_to(root)
        prefix = f"{below.as_posix()}/" if below.parts else ""
        rules = (*rules_of.pop(Path(folder)), *rules_in(Path(folder), prefix, set(names)))
        entered = sorted(name for name in folders if _is_entered(name) and len(below.parts) < MAX_DEPTH)
        brains = [name for name in entered if is_brain(Path(folder, name))]
        for name in brains:
            yield LeftOut(path=f"{root.resolve().name}/{prefix}{name}", reason="is a brain already")
        entered = [name for name in entered if name not in brains]
        folders[:] = [name for name in entered if not is_ignored(f"{prefix}{name}/", rules)]
        ignored += len(entered) - len(folders)
        rules_of |= {Path(folder, name): rules for name in folders}
        for name in sorted(filter(_is_wanted, names)):
            file, path = Path(folder, name), f"{root.resolve().name}/{prefix}{name}"
            if is_ignored(f"{prefix}{name}", rules):
                ignored += 1
                continue
            looked_at += 1
            if looked_at > MAX_FILES:
                yield LeftOut(path=path, reason=f"and what follows: more than {MAX_FILES:,} files; import in parts")
                return
            if file.is_symlink():
                yield LeftOut(path=path, reason="is a link, which is not followed")
            elif exclude and is_excluded(str(file), exclude):
                yield LeftOut(path=path, reason="is excluded (capture.exclude_paths)")
            else:
                yield FoundFile(path=path, file=file)
    if ignored:
        found = f"{counted(ignored, 'file')} and folders" if ignored > 1 else "a file or folder"
        yield LeftOut(path=root.resolve().name, reason=f"{found} left out by {', '.join(IGNORE_FILES)}")
    for error in refused:
        yield LeftOut(path=str(error.filename), reason=f"cannot be listed ({(error.strerror or 'unknown').lower()})")


def read_text(found: FoundFile) -> str | LeftOut:
    """The text of a file, or why it has none."""
    limit = MAX_EXPORT_BYTES if found.path.endswith(EXPORT_ENDINGS) else MAX_NOTE_BYTES
    try:
        if not found.file.is_file():
            return LeftOut(path=found.path, reason="is no ordinary file")
        if found.path.endswith(DATABASE_ENDINGS) and is_database(found.file):
            return export_of(found.file) or LeftOut(path=found.path, reason="is no database that is known")
        with found.file.open("rb") as opened:
            content = opened.read(limit + 1)
    except sqlite3.Error as error:
        return LeftOut(path=found.path, reason=f"is a database that cannot be read ({error})")
    except OSError as error:
        return LeftOut(path=found.path, reason=f"cannot be read ({(error.strerror or 'unknown').lower()})")
    if len(content) > limit:
        return LeftOut(path=found.path, reason=f"is larger than {limit:,} bytes")
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        return LeftOut(path=found.path, reason="is no UTF-8 text")
    return LeftOut(path=found.path, reason="is binary") if "\0" in text else text


def _is_entered(name: str) -> bool:
    return name in _HIDDEN_FOLDERS or not (name.startswith(".") or name.lower() in _SKIPPED_FOLDERS)


def _is_wanted(name: str) -> bool:
    return name in _NAMED or (not name.startswith(".") and name.lower().endswith((*NOTE_ENDINGS, *EXPORT_ENDINGS)))
