"""Commands that learn from sessions: capture-session, capture."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer
from typer import Option

from nugget.cli.terminal import BrainOption, DryRunOption, JsonOption, open_brain, print_json, show
from nugget.config import expanded, read_environment, read_user_file, renamed_keys
from nugget.errors import UsageError
from nugget.render import reports
from nugget.render.json import capture_json, fields
from nugget.render.terminal import note, put
from nugget.text import counted, one_line

if TYPE_CHECKING:
    from nugget.capture.queue import Job

commands = typer.Typer(add_completion=False)


Way = Literal["auto", "claude-code", "api", "openai", "offline"]
"""Ways to find knowledge in a session, as `extraction.with` names them."""
OldMethodOption = Annotated[str | None, Option("--method", hidden=True)]
WayOption = Annotated[Way | None, Option("--with", help="How to find knowledge, instead of `extraction.with`.")]


def chosen_way(way: Way | None, method: str | None) -> str | None:
    """Return the way to find knowledge that the options name; report old names."""
    environment = read_environment()
    for key, value in renamed_keys(environment, read_user_file(environment)).items():
        note(f"`{key}: {value}` is called `extraction.with` now, and will not be read in the next release.")
    if method is None:
        return way
    note("--method is called --with now, and will be gone in the next release.")
    ways = {"auto": "auto", "generative": "generative", "heuristic": "offline"}
    if method not in ways:
        raise UsageError(f"There is no method {method!r}.", hint=f"Use --with {', '.join(get_args(Way))}.")
    return ways[method]


@commands.command("capture-session")
def capture_session(
    transcript: Annotated[
        Path | None,
        Option("--transcript", metavar="PATH", help="A transcript of Claude Code, Codex, Gemini CLI, Cursor or "
                                                    "OpenCode."),
    ] = None,
    session: Annotated[str | None, Option("--session", metavar="ID", help="The id of a session.")] = None,
    way: WayOption = None,
    method: OldMethodOption = None,
    foreground: Annotated[
        bool, Option("--foreground", help="With a hook payload on stdin: capture now instead of queueing.")
    ] = False,
    dry_run: DryRunOption = False,
    explain: Annotated[
        bool, Option("--explain", help="Show what was considered, why, and what became of it; write nothing.")
    ] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:  # fmt: skip
    """Propose what is worth keeping from a session.

    The proposed units are committed on a branch of the brain for review. With a hook payload on stdin and no options,
    the session is queued and the command returns at once.
    """
    from nugget.app.worker import capture_file, explain_session

    chosen = chosen_way(way, method)
    file = _transcript(transcript, session, foreground=foreground)
    with open_brain(brain) as opened:
        if explain:
            name, claims = explain_session(file, opened, way=chosen)
            show({"session": name, "claims": claims} if as_json else None, lambda: put("\n".join(claims)))
            return
        result, published = capture_file(file, opened, way=chosen, dry_run=dry_run)
    if as_json:
        print_json(capture_json(result) | {"published": [asdict(entry) for entry in published.publications]})
    else:
        reports.put_report("capture", result=result, dry_run=dry_run)
        reports.put_report("published", published=published, is_requested=False)


@commands.command()
def capture(
    catch_up: Annotated[bool, Option("--catch-up", help="Also find sessions that were never captured.")] = False,
    retry: Annotated[bool, Option("--retry", help="Also retry sessions that failed.")] = False,
    publish: Annotated[bool, Option("--publish", help="Open a pull request for every proposal that has none.")] = False,
    re_redact: Annotated[
        bool, Option("--re-redact", help="Only redact the archived sessions again, with the current rules.")
    ] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Process queued sessions now."""
    from nugget.app.worker import work

    with open_brain(brain) as opened:
        folder, environment = opened.path, opened.environment
    if re_redact:
        raise typer.Exit(_re_redact(folder, as_json=as_json))

    def tell(job: Job) -> None:
        text = job.branch or job.reason or ""
        note(f"{job.state}: {job.session or Path(job.transcript or job.name).stem} {one_line(text)}")

    done = work(environment, catch_up=catch_up, retry=retry, flag=folder if brain else None, publish=publish,
                report=tell)  # fmt: skip
    failed = sum(job.state == "failed" for job in done.jobs)
    here = done.published.get(folder)
    unpublished = len(here.failed) + (here.local is not None) if here and publish else 0
    if as_json:
        jobs = [fields(job, "session", "transcript", "state", "branch", "reason") for job in done.jobs]
        published = [asdict(entry) for one in done.published.values() for entry in one.publications]
        print_json({"found": done.found, "jobs": jobs, "published": published})
    else:
        proposed = sum(job.branch is not None for job in done.jobs)
        found = f"{done.found} found by catch-up, " if catch_up else ""
        worked = counted(len(done.jobs), "session")
        put(f"{found}{worked} worked: {counted(proposed, 'proposal')}, {failed} failed.")
        for one in done.published.values():
            reports.put_report("published", published=one, is_requested=publish)
        if proposed:
            put("Next: nugget review")
    raise typer.Exit(1 if failed or unpublished else 0)


def _re_redact(folder: Path, *, as_json: bool) -> int:
    """Redact the archive again; return the exit code."""
    from nugget.app.worker import redact_archive

    done = redact_archive(read_environment(), folder)
    if as_json:
        print_json(asdict(done) | {"unreadable": [str(file) for file in done.unreadable]})
    else:
        looked_at = counted(done.looked_at, "archived session")
        removed = f"{done.removed} of excluded projects removed"
        put(f"{looked_at} looked at: more was taken out of {done.rewritten}, {removed}.")
        for file in done.unreadable:
            note(f"cannot be read, and stays as it is: {file}")
    return 1 if done.unreadable else 0


def _transcript(transcript: Path | None, session: str | None, *, foreground: bool) -> Path:
    """Return the transcript given by its path, its session's id, or the payload on stdin."""
    from nugget.app.worker import find_transcript

    if transcript is None and session is None and foreground:
        try:
            payload = {} if sys.stdin.isatty() else json.loads(sys.stdin.read(4_000_000) or "{}")
        except ValueError as error:
            raise UsageError(f"The payload on stdin is not JSON ({error}).") from None
        given = payload if isinstance(payload, dict) else {}
        named, known = given.get("transcript_path"), given.get("session_id")
        transcript = Path(named) if isinstance(named, str) else None
        session = known if isinstance(known, str) else None
    if transcript is not None:
        return expanded(transcript)
    if session is None:
        raise UsageError(
            "Say which session: --transcript PATH, --session ID, or a hook payload on stdin.",
            hint="Transcripts are under ~/.claude/projects/.",
        )
    return find_transcript(read_environment(), session)
