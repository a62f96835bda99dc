"""Commands that look after a brain: sync, rebuild, status, doctor, redact, scrub, eval, queries."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from nugget.cli import BrainOption, JsonOption, day, library, listed, open_brain, progress, show, writing
from nugget.cli import doctor as checks
from nugget.cli import status as states
from nugget.config import current_folder, expanded, load_settings, read_environment
from nugget.errors import GitError, NuggetError, UsageError, require_known
from nugget.models import SourceName
from nugget.render.terminal import note, put_report
from nugget.text import DATE_FORMS, counted

if TYPE_CHECKING:
    from nugget.app import Brain
    from nugget.index.embedded.sync import SyncResult
    from nugget.index.postgres.writer import PublishedUnits

commands = typer.Typer(add_completion=False)


@commands.command()
def sync(
    rebuild: Annotated[bool, Option("--rebuild", help="Rebuild the index of the brain.")] = False,
    source: Annotated[
        list[str] | None,
        Option("--source", metavar="S,..", help="Only these sources: brain, canon, provenance, sessions, shell, "
                                                "bridge, or machine for all but the brain."),
    ] = None,
    pull: Annotated[
        bool | None, Option("--pull/--no-pull", help="First pull what was merged on the remote.")
    ] = None,
    rebase: Annotated[
        bool, Option("--rebase", help="Put commits that only this brain has on top of the remote's, and push them.")
    ] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:  # fmt: skip
    """Update the indexes from the files: the brain's, then that of every other source."""
    obstacle: NuggetError | None = None
    names = _chosen(source)
    result: SyncResult | None = None
    published: PublishedUnits | None = None
    with open_brain(brain) as opened, progress():
        if opened.embedder_problem:
            note(f"{opened.embedder_problem} Indexing words alone.")
        if SourceName.BRAIN in names:
            if rebase or (opened.settings.sync_pull if pull is None else pull):
                obstacle = _follow(opened, rebase=rebase, is_asked=rebase or bool(pull))
            result = opened.sync(rebuild=rebuild)
            published = opened.publish_index(rebuild=rebuild)
        others = [name for name in names if name is not SourceName.BRAIN]
        beside = opened.sync_local_sources(others) if others else {}
    value = asdict(result) if result else {}
    value |= {"sources": {str(name): asdict(its) for name, its in beside.items()}}
    show(value if as_json else None, report="sync", result=result, published=published, beside=beside)
    if obstacle is not None and (pull or rebase):
        raise obstacle


def _chosen(given: Sequence[str] | None) -> tuple[SourceName, ...]:
    """Return the sources to sync, all but memory by default. Raises UsageError."""
    every = tuple(name for name in SourceName if name is not SourceName.MEMORY)
    chosen: list[SourceName] = []
    for name in (part.lower() for part in listed(given)):
        require_known("source", [name], ("machine", *every))
        chosen += every[1:] if name == "machine" else [SourceName(name)]
    return tuple(dict.fromkeys(chosen)) or every


def _follow(opened: Brain, *, rebase: bool, is_asked: bool) -> NuggetError | None:
    """Pull what was decided on the remote; return the first problem."""
    try:
        done = opened.follow(rebase=rebase)
    except NuggetError as error:
        return error
    if done is None:
        return GitError("The brain has no remote, or is not trusted.", hint="`nugget init --remote URL` sets one.")
    for one in done.changed:
        note(f"{one.reason or one.state}: {one.url or one.branch}")
    if done.commit:
        note(f"Pulled: the brain is at {done.commit[:10]} now.")
    elif is_asked and not done.problems:
        note("Nothing to pull.")
    for problem in done.problems if not is_asked else done.problems[1:]:
        note(f"Not synced with the remote: {problem.with_hint}")
    return done.problems[0] if done.problems else None


@commands.command()
def rebuild(as_json: JsonOption = False, brain: BrainOption = None) -> None:
    """Rebuild the index.

    The old index answers until the new one is ready; existing vectors are reused.
    """
    sync(rebuild=True, pull=False, as_json=as_json, brain=brain)


@commands.command()
def status(as_json: JsonOption = False, brain: BrainOption = None) -> None:
    """Show what is indexed, what waits and since when, and what was captured, queued, failed and spent.

    The exit code is always 0; `nugget doctor` exits with 1 if something is wrong.
    """
    if library.brain_or_server(brain, environment := read_environment()) is None:
        sent = states.sending(environment)
        show(sent if as_json else None, report="sending", seen=sent)
        return
    with open_brain(brain) as opened:
        seen, *others = [states.status(one.path, one.settings, one.environment) for one in (opened, *opened.others)]
        found = checks.quick_checks(seen, opened.settings, opened.environment, datetime.now(UTC))
        named, left_out = {one.name: its for one, its in zip(opened.others, others, strict=True)}, opened.left_out
    more = {"others": named, "left_out": list(left_out)} if named or left_out else {}
    values: dict[str, Any] = {
        "seen": seen, "drift": states.drift, "others": named, "left_out": left_out,
        "verdict": checks.open_checks(found), "waiting": [one for one in found if one["state"] != "ok"],
    }  # fmt: skip
    show(seen | more if as_json else None, report="status", **values)


@commands.command()
def doctor(
    mend: Annotated[bool, Option("--repair", help="Repair what can be repaired, and say what was done.")] = False,
    secrets: Annotated[
        bool, Option("--secrets", help="Instead, look for secrets in everything that Nugget keeps.")
    ] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Check everything, and name the command that fixes each problem.

    Changes nothing without --repair, which removes stale locks, leftovers and damaged indexes, and rebuilds the
    indexes. The exit code is 1 if something is wrong (✗), 0 if there are only warnings (!).
    """
    if secrets:
        with open_brain(brain) as opened, progress():
            leaks = list(opened.leaks())
        show({"ok": not leaks, "leaks": leaks} if as_json else None, report="leaks", leaks=leaks)
        raise typer.Exit(1 if leaks else 0)
    environment, repaired = read_environment(), list[str]()
    if library.brain_or_server(brain, environment) is None:
        status(as_json=as_json)
        raise typer.Exit(1 if states.sending(environment)["capture"]["failures"] else 0)
    if mend:
        with open_brain(brain) as opened:
            repaired = opened.repair() or ["There was nothing to repair."]
    path = library.brain_in_use(brain, environment)
    settings = load_settings(environment, path, refused=[])  # doctor says what is refused, and checks the rest
    found = checks.doctor(path, settings, environment, now=datetime.now(UTC))
    wrong = sum(finding["state"] == "error" for finding in found)
    value = {"ok": not wrong, "brain": str(path), "findings": found} | ({"repaired": repaired} if mend else {})
    show(value if as_json else None, report="findings", repaired=repaired, brain=path, found=found,
         verdict=checks.open_checks(found))  # fmt: skip
    raise typer.Exit(1 if wrong else 0)


def _read(file: str) -> bytes:
    """Return the content of a file, or of standard input for `-`."""
    return sys.stdin.buffer.read() if file == "-" else Path(file).expanduser().read_bytes()


@commands.command()
def redact(
    file: Annotated[str, Argument(metavar="FILE|-", help="The file to read; - is standard input.")],
    stats: Annotated[bool, Option("--stats", help="Show the number of secrets by rule, and the speed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what redaction would remove from a file and by which rule, without showing the secret.

    Changes nothing. `redaction.allow` in your settings keeps what only looks like a secret.
    """
    content = _read(file)
    writing.secret_lines("")  # the rules are loaded before the clock starts
    begin = time.perf_counter()
    found = writing.secret_lines(content.decode("utf-8", "replace"))
    seconds = time.perf_counter() - begin
    lines = [{"line": line, "kind": kind, "rule": rule} for line, kind, rule in found]
    kinds, rules = Counter(kind for _, kind, _ in found), Counter((kind, rule) for _, kind, rule in found)
    show({"file": file, "found": lines, "counts": dict(kinds)} if as_json else None,
         report="redaction", file=file, found=found, counts=rules.most_common() if stats else None,
         size=len(content) / 1e6, seconds=seconds)  # fmt: skip


@commands.command()
def scrub(
    secret_file: Annotated[
        str | None,
        Option("--secrets", metavar="FILE|-", help="File of leaked secrets, one per line; - is standard input."),
    ] = None,
    brain: BrainOption = None,
) -> None:
    """Remove leaked secrets from everything that Nugget keeps.

    Rewrites the files below NUGGET_HOME and in the brain; archived sessions are redacted again by the current rules.
    An index that holds a secret is deleted; `nugget sync` rebuilds it. The brain's git history is yours to rewrite; the
    command says how. Revoke the secret first; `nugget doctor --secrets` shows where rules find some.
    """
    given = _read(secret_file).decode("utf-8", "replace") if secret_file else ""
    known = [line.strip() for line in given.splitlines() if line.strip()]
    if short := [line for line in known if len(line) < 6]:
        raise UsageError(f"{counted(len(short), 'secret')} of fewer than 6 characters would be found in any text.")
    with open_brain(brain) as opened, progress():
        done = opened.scrub(known)
    put_report("scrub", done=done, brain=opened.path)
    raise typer.Exit(1 if done["failed"] or done["history"] else 0)


@commands.command("eval")
def evaluate(
    files: Annotated[
        list[Path] | None,
        Argument(metavar="FILE..", help="Files of golden questions; by default the brain's evals/*.yaml."),
    ] = None,
    baseline: Annotated[
        Path | None,
        Option("--baseline", metavar="FILE", help="Compare with this run (a --json output), not the last one."),
    ] = None,
    threshold: Annotated[
        float, Option("--threshold", metavar="X", min=0, max=1, help="How much a metric may fall.")
    ] = 0.02,
    accept: Annotated[bool, Option("--accept", help="Keep this run as the new baseline even if it is worse.")] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Measure how well golden questions are answered.

    For use in CI: the exit code is 1 if a metric fell by more than the threshold since the compared run, or if a
    question expects a unit that does not exist. A unit that was forgotten on purpose is reported but is not a failure.
    No LLM is used.
    """
    here = current_folder()
    named, compared = [here / expanded(file) for file in files or ()], here / expanded(baseline) if baseline else None
    with open_brain(brain) as opened:
        with progress():
            opened.sync()
        if opened.embedder_problem:
            note(f"{opened.embedder_problem} Searching by words alone.")
        run, found, failed = opened.evaluate(named, baseline=compared, threshold=threshold, accept=accept)
    below = [one for one in run["results"] if one["expected"] and one["rank"] != 1]
    changed = [name for name in found["now"] if found["now"][name] != found["before"][name]] if found else []
    show(run | {"comparison": found} if as_json else None, report="run", run=run, found=found, threshold=threshold,
         accepted=accept, changed=changed, below=sorted(below, key=lambda one: -(one["rank"] or 1000)))  # fmt: skip
    raise typer.Exit(1 if failed else 0)


@commands.command()
def queries(
    zero: Annotated[bool, Option("--zero", help="Only questions without results.")] = False,
    weak: Annotated[bool, Option("--weak", help="Only questions with weak answers.")] = False,
    since: Annotated[
        str | None, Option("--since", metavar="DATE", help=f"Only questions asked since: {DATE_FORMS}.")
    ] = None,
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Maximum number of questions.")] = 10,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:  # fmt: skip
    """Show the questions asked of the brain, most frequent first.

    Also shows the answers, questions without an answer, times, and how much of the brain was ever returned.
    """
    with open_brain(brain) as opened:
        found = opened.asked_questions(day(since))
        is_kept = opened.settings.retrieval_log_queries
    chosen = [
        one
        for one in found["queries"]
        if not (zero or weak) or (zero and one["zero"]) or (weak and one["weak"] and not one["zero"])
    ][:limit]
    show(found | {"queries": chosen} if as_json else None,
         report="queries", found=found, askings=chosen, is_kept=is_kept)  # fmt: skip
