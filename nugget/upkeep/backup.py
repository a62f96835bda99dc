"""Back up and restore what cannot be derived in `$NUGGET_HOME`, as one archive."""

from __future__ import annotations

import gzip
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from nugget.errors import ConflictError, NuggetError, UsageError, reason_of
from nugget.infra import files

_DERIVED = frozenset(
    ("index.db", "memory-indexes", "indexes", "embeddings", "cache", "models", "locks", "log", "run", "http-header")
)
_MAX_MEMBERS, _MAX_BYTES = 1_000_000, 50 * 1024**3


def backup(home: Path, target: Path) -> int:
    """Write what cannot be derived to a new archive that only its owner can read; return the number of files.

    Raises UsageError if the file exists.
    """
    if target.exists():
        raise UsageError(f"{target} exists already.", hint="Name another file.")
    partial = target.with_name(f".{target.name}.partial")
    count = 0
    try:
        with files.open_private(partial, "wb") as opened, tarfile.open(fileobj=opened, mode="w:gz") as archive:
            for file in _kept(home):
                with suppress(FileNotFoundError):  # a job that another process has moved
                    archive.add(file, arcname=file.relative_to(home).as_posix(), recursive=False)
                    count += 1
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return count


def _kept(home: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(home):
        if Path(folder) == home:
            folders[:] = [name for name in folders if name not in _DERIVED]
        for name in sorted(names):
            file = Path(folder, name)
            is_derived = name.startswith("index.db") or name in _DERIVED or name.endswith((".lock", ".partial"))
            if not is_derived and file.is_file() and not file.is_symlink():
                yield file


def restore(home: Path, source: Path) -> int:
    """Restore a backup into an empty home; return the number of files.

    An archive with anything but plain files and folders is refused. Raises UsageError, ConflictError if the home
    is in use, NuggetError for an archive that cannot be read; nothing was changed then.
    """
    if next(_kept(home), None) is not None:
        raise ConflictError(f"{home} holds something already; nothing was restored.", hint="Move it away first.")
    files.private_folder(home.parent)
    try:
        with (
            gzip.open(source) as stream, tarfile.open(fileobj=stream, mode="r:") as archive,
            tempfile.TemporaryDirectory(dir=home.parent) as folder,
        ):  # fmt: skip
            members = list(_checked(archive))
            while stream.read(1 << 20):  # read to the end, to check the checksum
                pass
            for member in members:
                archive.extract(member, folder, filter="data")
            files.make_private(folder)
            files.private_folder(home)
            for entry in Path(folder).iterdir():
                entry.replace(home / entry.name)
    except (OSError, tarfile.TarError, EOFError, zlib.error) as error:
        raise NuggetError(f"{source} cannot be restored ({reason_of(error)}); nothing was changed.") from error
    return len(members)


def _checked(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the files of an archive. Raises UsageError for one that does not come from `backup`."""
    size = 0
    for number, member in enumerate(archive):
        parts = Path(member.name).parts
        size += member.size
        if not member.isfile() or member.name.startswith("/") or ".." in parts or parts[:1] == ():
            raise UsageError(f"{member.name!r} in the archive is not a plain file inside of it; nothing was restored.")
        if number >= _MAX_MEMBERS or size > _MAX_BYTES:
            raise UsageError("The archive holds more than a home of Nugget; nothing was restored.")
        yield member
