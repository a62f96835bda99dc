"""What commands share: options, the brain in use, JSON, errors, progress, pager, completion."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nugget.config import read_environment
from nugget.errors import BrainError, NuggetError, UsageError
from nugget.models import KnowledgeType
from nugget.render.terminal import console, note
from nugget.text import DATE_FORMS, clean, counted, one_line, parse_day, parse_moment

if TYPE_CHECKING:
    from rich.console import Console

    from nugget.app import Brain
    from nugget.app.provenance import Provenance
    from nugget.config import Environment
    from nugget.index.sync import Progress
    from nugget.models import SourceName


BAR_FROM = 10
"""Shorter work is over before a bar could be read."""


ANNOUNCED_FROM = 200
"""Work of this size is announced in a line where no bar can be drawn."""


def _local_or_global(ctx: typer.Context, value: Path | None) -> Path | None:
    """`nugget --brain X ask` and `nugget ask --brain X` are the same; the nearest one counts."""
    above = ctx.parent
    while value is None and above is not None:
        value, above = above.params.get("brain"), above.parent
    return value


GlobalBrainOption = Annotated[
    Path | None,
    typer.Option("--brain", metavar="FOLDER", help="The brain to use, instead of NUGGET_BRAIN, the current folder's "
                                                   "or the default one."),
]  # fmt: skip


BrainOption = Annotated[
    Path | None,
    typer.Option("--brain", metavar="FOLDER", help="The brain to use.", callback=_local_or_global),
]


JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def current_folder() -> Path:
    """Return the folder the command was called in. Raises UsageError if it is gone."""
    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError("The current folder does not exist any more.", hint="Change to another folder.") from error


def brain_folder(flag: Path | None, environment: Environment | None = None) -> Path:
    """Return the brain in use, after finishing a change that a killed command left. Raises BrainError if none."""
    from nugget.config import expanded, read_environment
    from nugget.infra import git
    from nugget.infra.brain_in_use import find_brain

    named = None if flag is None else expanded(flag)
    found = find_brain(environment or read_environment(), flag=named, cwd=current_folder())
    git.finish_pending(found)
    return found


def open_brain(flag: Path | None) -> Brain:
    """Open the brain in use. Raises BrainError if there is none, UsageError for settings it cannot take."""
    from nugget.app import Brain
    from nugget.config import read_environment
    from nugget.infra.query_log import Face

    environment = read_environment()
    return Brain(brain_folder(flag, environment), environment=environment, face=Face.CLI)


def provenance(flag: Path | None = None) -> Provenance:
    """Return the provenance of the current folder, with the brain in use if there is one or one was named."""
    from nugget.app.provenance import Provenance

    environment = read_environment()
    try:
        brain: Path | None = brain_folder(flag, environment)
    except BrainError:
        if flag is not None:
            raise
        brain = None
    return Provenance(environment=environment, folder=current_folder(), brain=brain, note=note)


def print_json(value: Any) -> None:
    """The one JSON document of a command."""
    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    sys.stdout.write(json.dumps(value, ensure_ascii=not is_unicode, indent=2) + "\n")


def accept_any_text() -> None:
    """Let stdout and stderr show `?` for what their encoding does not have, rather than fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def complain(message: str, *, hint: str | None = None) -> None:
    """An error as one sentence on stderr, with what to do about it on the next line."""
    from rich.text import Text

    out = console(stderr=True)
    out.print(Text.assemble(("Error: ", "bold red"), clean(message)))
    if hint:
        out.print(Text(clean(hint)))


def report(error: NuggetError) -> int:
    """Tell an expected failure; returns its exit code."""
    complain(str(error), hint=error.hint)
    return error.exit_code


@contextmanager
def progress() -> Iterator[Progress]:
    """Progress on stderr: a bar on a terminal, one line for long work elsewhere, nothing for short work."""
    with _bar() if sys.stderr.isatty() else _announcement() as tell:
        yield tell


@contextmanager
def _bar() -> Iterator[Progress]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console(stderr=True), transient=True)
    tasks: dict[str, Any] = {}

    def tell(what: str, done: int, total: int) -> None:
        if total < BAR_FROM:
            return
        if not tasks:
            bar.start()
        if what not in tasks:
            tasks[what] = bar.add_task(what, total=total)
        bar.update(tasks[what], completed=done, total=total)

    try:
        yield tell
    finally:
        bar.stop()


@contextmanager
def _announcement() -> Iterator[Progress]:
    announced: set[str] = set()

    def tell(what: str, done: int, total: int) -> None:
        if total >= ANNOUNCED_FROM and what not in announced:
            announced.add(what)
            print(f"{what} {total:,} files…", file=sys.stderr, flush=True)

    yield tell


PagerOption = Annotated[bool, typer.Option("--pager/--no-pager", help="Page long output on a terminal.")]


_LESS = "FRX"
"""Options of `less` unless the person set some, as git sets them: quit if it fits, keep colours, keep the screen."""


@contextmanager
def paged(out: Console, *, is_wanted: bool = True) -> Iterator[None]:
    """Show what is printed to `out` in a pager where a terminal is too small for it; as it is otherwise.

    `PAGER` names the pager with its arguments, which no shell reads; `PAGER=cat` or an empty one is none. Without it
    that is `less`, else `more`.
    """
    if not (is_wanted and sys.stdout.isatty() and sys.stdin.isatty()):
        yield
        return
    with out.capture() as captured:
        yield
    text = captured.get()
    environment = dict(read_environment().variables)
    command = _pager(environment.get("PAGER"))
    if command and _is_longer(text, width=out.width, height=out.height):
        try:
            _run(command, text, {"LESS": _LESS, "LV": "-c"} | environment)
            return
        except OSError as error:
            note(f"PAGER={command[0]} cannot be run ({error.strerror}).")
    with suppress(BrokenPipeError):
        out.file.write(text)
        out.file.flush()


def _pager(named: str | None) -> list[str]:
    """The command of the pager; empty for none. One that cannot be taken apart counts as a name."""
    if named is None:
        found = next(filter(None, map(shutil.which, ("less", "more"))), None)
        return [found] if found else []
    try:
        command = shlex.split(named)
    except ValueError:
        command = [named]
    return [] if command in ([], ["cat"]) else command


def _is_longer(text: str, *, width: int, height: int) -> bool:
    """Return whether a text needs more rows than a terminal has, with one for the prompt."""
    from rich.text import Text

    rows = 0
    for line in text.splitlines():
        rows += max(1, -(-Text.from_ansi(line).cell_len // max(1, width)))
        if rows >= height:
            return True
    return False


def _run(command: list[str], text: str, environment: Mapping[str, str]) -> None:
    """Let the pager show the text until the person leaves it; Ctrl-C is the pager's. Raises OSError."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as process:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process.communicate(text.encode("utf-8", "replace"))
        finally:
            signal.signal(signal.SIGINT, before)


_MOST = 100


def complete_ref(incomplete: str) -> list[tuple[str, str]]:
    """Refs that begin so, with their titles. Memory is never among them."""
    try:
        with _brain_as_it_is() as opened:
            return opened.refs_beginning(incomplete, limit=_MOST)
    except Exception:  # a person who types sees no error here
        return []


def complete_domain(incomplete: str) -> list[str]:
    """Domains that begin so."""
    return _named("domains", incomplete)


def complete_tag(incomplete: str) -> list[str]:
    """Tags that begin so."""
    return _named("tags", incomplete)


def complete_type(incomplete: str) -> list[str]:
    """The types of knowledge that begin so."""
    return _beginning(KnowledgeType, incomplete.lower())


def complete_any_type(incomplete: str) -> list[str]:
    """The types of the units of any source that begin so."""
    from nugget.models.nuggets import TYPES

    return _beginning(TYPES, incomplete.lower())


def _named(kind: str, incomplete: str) -> list[str]:
    last = incomplete.rpartition(",")[2]
    try:
        with _brain_as_it_is() as opened:
            found = getattr(opened.suggest(last, limit=_MOST), kind)
            return _beginning([name for name, _ in found], incomplete)
    except Exception:  # as above
        return []


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    """Return the names that complete the last of several, separated by commas."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


def _brain_as_it_is() -> Brain:
    """Open the brain in use as it is. Raises NuggetError if there is none."""
    from nugget.app import Brain
    from nugget.infra.brain_in_use import find_brain

    environment = read_environment()
    return Brain(find_brain(environment, cwd=Path.cwd()), environment=environment)


def words(given: Sequence[str], what: str) -> str:
    """Join the words of an argument to one text. Raises UsageError if there are none."""
    text = " ".join(given).strip()
    if not text:
        raise UsageError(f"Give {what}.")
    return text


def listed(values: Sequence[str] | None) -> tuple[str, ...]:
    """The values of an option that may be repeated and may hold several, with commas between."""
    return tuple(part.strip() for value in values or () for part in value.split(",") if part.strip())


def day(text: str | None) -> date | None:
    """Parse the day given by --since. Raises UsageError if it is not a date."""
    if text is None:
        return None
    found = parse_day(text.strip(), today=datetime.now(UTC).date())
    if found is None:
        raise _no_date(text)
    return found


def moment(text: str | None, *, now: datetime) -> datetime | None:
    """Parse the moment given by --since. Raises UsageError if it is not a date."""
    if text is None:
        return None
    found = parse_moment(text.strip(), now=now)
    if found is None:
        raise _no_date(text)
    return found


def _no_date(text: str) -> UsageError:
    return UsageError(f"{text!r} is not a date.", hint=f"Write {DATE_FORMS}.")


def refresh(brain: Brain) -> bool:
    """Sync what changed; return True if that is so much that it runs in the background and this answer is older.

    An index without vectors of the configured model is rebuilt in the background too.
    """
    from nugget.app.background import sync_in_background
    from nugget.index.connection import NO_INDEX

    with progress() as tell:
        state = brain.refresh(progress=tell)
    if brain.embedder_problem:
        note(f"{brain.embedder_problem} Searching by words alone.")
    if state.synced and state.synced.rebuilt and state.synced.rebuilt != NO_INDEX:
        note(f"The index was rebuilt ({one_line(state.synced.rebuilt)}).")
    if state.behind:
        started = sync_in_background(brain.path, brain.environment)
        doing = "they are being indexed in the background" if started else "another process is indexing them"
        note(f"{counted(state.behind, 'file')} changed; {doing}, and this answer is from before.")
    elif state.model_problem:
        note(f"{state.model_problem} Searching by words alone; `nugget sync` tries the model again.")
    elif state.other_model and brain.embedder:
        sync_in_background(brain.path, brain.environment)
        note(f"The index is being rebuilt for {brain.embedder.model}; until then words alone are searched.")
    return state.behind > 0


def refresh_local_sources(opened: Brain, sources: Sequence[SourceName], *, is_quiet: bool) -> bool:
    """Take in what little changed beside the brain; True when more waits, which is then synced in the background."""
    from nugget.app.background import sync_local_in_background

    state = opened.refresh_local_sources(sources)
    for problem in () if is_quiet else state.problems:
        note(str(problem))
    if not state.total and not state.lacks_vectors:
        return False
    started = sync_local_in_background(opened.path, opened.environment)
    if not state.total or is_quiet:
        return state.total > 0
    doing = "they are being indexed in the background" if started else "another process is indexing them"
    parts = ", ".join(f"{count} of {source}" for source, count in state.files.items())
    note(f"{counted(state.total, 'file')} changed beside the brain ({parts}); {doing}, and this answer is from before.")
    return True
