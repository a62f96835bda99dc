"""The brain: a folder of knowledge files in git. Make one, walk it, read and write its files.

Nothing here follows a path or link out of the brain, or overwrites a file that changed since it was read.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from nugget import config
from nugget.brain import knowledge_file as knowledge
from nugget.errors import BrainError, KnowledgeError, UsageError, reason_of, require_known
from nugget.infra import git
from nugget.infra.files import open_plain, resource
from nugget.models import KnowledgeType, Problem
from nugget.text import printable

_OWN_FOLDERS = frozenset({".git", ".nugget", ".DS_Store"})
_IGNORED = ".nugget/"
_EXAMPLES = "examples"


def is_brain(folder: Path) -> bool:
    """Return True if the folder is a brain: it has a brain.yaml and a `domains` folder or a `.git`."""
    return (folder / "brain.yaml").is_file() and ((folder / "domains").is_dir() or (folder / ".git").exists())


def init_brain(path: Path, *, owner: str, now: datetime, examples: bool = False) -> tuple[Path, bool]:
    """Make a brain from the template, with git and a first commit; return its real path and whether it is new.

    With `examples`, a folder of that name shows a unit of each type; it is not part of the knowledge. An unfinished
    brain is completed; an existing one keeps every file. Raises BrainError if the folder holds something else or
    cannot be written; GitError if git is not installed or refuses.
    """
    path = Path(os.path.realpath(config.expanded(path)))  # also for circular links
    with git.clear_errors(path):
        template = _template(path.name, owner=owner, now=now, examples=examples)
        if git.is_repository(path):
            git.finish_pending(path)
        created = not is_brain(path)
        if created:
            _refuse_foreign(path)
            path.mkdir(parents=True, exist_ok=True)
        _first_commit(path, template, created=created)
        return path, created


def is_knowledge_path(path: str) -> bool:
    """Return True if a path in the brain can be a knowledge file's: under `domains/`, not hidden, not a README."""
    folders, _, name = path.rpartition("/")
    is_hidden = path.startswith(".") or "/." in path
    return f"{folders}/".startswith("domains/") and name.endswith(".md") and name != "README.md" and not is_hidden


def knowledge_paths(brain: Path, *, unlisted: list[Problem] | None = None) -> Iterator[str]:
    """Yield the paths of all knowledge files, with `/`, sorted folder by folder.

    Links to folders are not followed; a link to a file is listed, and `read_file` refuses it if it leads out of the
    brain. A folder that cannot be listed is left out, and added to `unlisted` as a problem.
    """

    def note(error: OSError) -> None:
        if unlisted is not None and not isinstance(error, FileNotFoundError):
            path = Path(str(error.filename)).relative_to(brain).as_posix()
            unlisted.append(Problem(path=printable(path), reason=f"cannot be listed ({_reason(error)})"))

    for folder, folders, names in os.walk(brain / "domains", onerror=note):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inside = Path(folder).relative_to(brain).as_posix()
        yield from filter(is_knowledge_path, (f"{inside}/{name}" for name in sorted(names)))


def read_file(brain: Path, path: str) -> bytes:
    """Return the content of one file of the brain.

    Raises KnowledgeError, starting with the path, if it leads out of the brain, is not a regular file, is larger than
    `knowledge.MAX_FILE_BYTES`, or cannot be read.
    """
    real = _inside(brain, path)
    try:
        if (opened := open_plain(real)) is None:
            raise KnowledgeError(f"{path}: is not a regular file")
        with opened:
            size = os.fstat(opened.fileno()).st_size
            if size > knowledge.MAX_FILE_BYTES:
                raise KnowledgeError(str(knowledge.too_large(size, path=path)))
            return opened.read(knowledge.MAX_FILE_BYTES + 1)
    except OSError as error:
        raise KnowledgeError(f"{path}: cannot be read ({_reason(error)})") from error


def load(brain: Path, path: str, content: bytes | None = None) -> knowledge.Parsed:
    """Read (unless its content is given) and parse one file; defects are returned as problems."""
    shown = printable(path)
    try:
        return knowledge.parse_bytes(read_file(brain, path) if content is None else content, path=path)
    except Exception as error:
        problem = Problem(path=shown, reason=reason_of(error).removeprefix(f"{shown}: "))
        return knowledge.Parsed(unit=None, problems=(problem,))


def unit_path(unit_type: str, domain: str, slug: str) -> str:
    """Return the path of a unit: `domains/<domain>/<type>s/<slug>.md`. Raises UsageError for invalid parts."""
    require_known("type", [unit_type], KnowledgeType)
    if not knowledge.is_id(f"{unit_type}/{slug}"):
        raise UsageError(f"{slug!r} cannot be the name of a unit.", hint="Use letters, digits and `-`.")
    return f"domains/{validate_domain(domain)}/{unit_type}s/{slug}.md"


def validate_domain(domain: str) -> str:
    """Return a domain as its folder is named: lower case, `-` for spaces. Raises UsageError for an invalid one."""
    named = re.sub(r"\s+", "-", unicodedata.normalize("NFC", domain).strip().strip("/").lower())
    if not knowledge.is_domain(named):
        hint = "Name a folder such as `coding`, or nested ones such as `coding/go`."
        raise UsageError(f"{domain!r} cannot be a domain.", hint=hint)
    return named


def _inside(brain: Path, path: str) -> Path:
    """Return the real path of a file that is inside the brain and not git's or the index's."""
    shown = printable(path)
    if shown != path:
        raise KnowledgeError(f"{shown}: has a line break or another unprintable character in its name; rename it")
    if Path(path).is_absolute() or not {"", ".", ".."}.isdisjoint(path.split("/")):
        raise KnowledgeError(f"{path}: is not a path inside the brain")
    root = os.path.realpath(brain)
    real = Path(os.path.realpath(f"{root}{os.sep}{path}"))
    if not real.is_relative_to(root):
        raise KnowledgeError(f"{path}: is a symbolic link out of the brain, which is not followed")
    if real == Path(root) or real.relative_to(root).parts[0] in _OWN_FOLDERS:
        raise KnowledgeError(f"{path}: is in, or links to, a folder that holds no knowledge")
    return real


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _template(name: str, *, owner: str, now: datetime, examples: bool) -> dict[str, str]:
    """Return path -> text of every file of a new brain, brain.yaml last."""
    root = resource("brain-template")
    return {
        file.relative_to(root).as_posix(): _fill(file.read_text("utf-8"), name=name, owner=owner, now=now)
        for file in sorted(root.rglob("*"), key=lambda file: (file.name == "brain.yaml", file))
        if file.is_file() and file.name != ".DS_Store" and (examples or file.parent.name != _EXAMPLES)
    }


def _fill(text: str, *, name: str, owner: str, now: datetime) -> str:
    """Return a template's text with this brain's owner, name and dates."""
    if text.startswith("---\n"):
        return knowledge.edit(text, changes={"created": now.date(), "last_modified": now.date()})
    for key, value in (("id", uuid.uuid4().hex), ("owner", owner), ("name", name)):
        line = f"{key}: {json.dumps(value, ensure_ascii=False)}"
        text = re.sub(rf'^{key}: ""$', lambda _, line=line: line, text, count=1, flags=re.MULTILINE)  # type: ignore[misc]
    return text


def _refuse_foreign(path: Path) -> None:
    """Raise BrainError unless the folder is absent, empty, or an empty git repository."""
    hint = "Name a folder that is empty or does not exist yet."
    if path.exists() and not path.is_dir():
        raise BrainError(f"{path} is a file, not a folder.", hint=hint)
    foreign = sorted(file.name for file in path.iterdir() if file.name not in _OWN_FOLDERS) if path.exists() else []
    if foreign:
        raise BrainError(f"{path} is not empty (it holds {printable(foreign[0])}), and is not a brain.", hint=hint)


def _first_commit(path: Path, template: Mapping[str, str], *, created: bool) -> None:
    """Commit a new brain; if it has commits, only the line added to its `.gitignore`."""
    ignore = path / ".gitignore"
    text = read_file(path, ignore.name).decode("utf-8", "surrogateescape") if os.path.lexists(ignore) else ""
    added = not created and _IGNORED not in [line.strip() for line in text.splitlines()]
    if added:
        ignore.write_text(f"{text.rstrip()}\n{_IGNORED}\n".lstrip(), "utf-8", "surrogateescape")
    if not git.is_repository(path) or git.head(path) is None:
        git.init(path)  # also after an unfinished attempt
    head, branch = git.head(path), git.current_branch(path)
    if branch is None or (head is not None and not added):
        return
    names = [*template, ".gitignore", *knowledge_paths(path)] if head is None else [".gitignore"]
    files = {name: (path / name).read_bytes() for name in names if (path / name).is_file()}
    if created:
        files = {name: text.encode() for name, text in template.items()} | files
    message = "Start the brain" if head is None else "Ignore what Nugget derives"
    git.commit_change(path, files, message, branch=branch, expect_head=head)
