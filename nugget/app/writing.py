"""The methods of `Brain` that write knowledge, decide on proposals, publish and evaluate."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nugget.app import brains
from nugget.brain import load, validate_domain
from nugget.config import expanded, load_settings, read_environment
from nugget.errors import EmbeddingUnavailable, NuggetError, UsageError
from nugget.evaluation import query_log
from nugget.evaluation.query_log import read_uses
from nugget.infra import files, git, remotes
from nugget.models import Filter, Hit, KnowledgeType, Problem, Query, SourceName, StaleReason, Unit
from nugget.models.nuggets import Nugget
from nugget.redaction import allow_list, redact
from nugget.redaction import secret_lines as find_secrets
from nugget.upkeep.trust import is_trusted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nugget.app import Brain
    from nugget.brain.filing import UnitMove
    from nugget.capture import CaptureResult, following, review
    from nugget.capture.compare import ProposalTarget, Similar
    from nugget.importing import ImportResult

IMPORT_LIMIT = 100
"""Units that an import proposes at once."""
NEIGHBOURS = 5
"""How many of the brain's units a new one is compared with."""
Places = Sequence[tuple[str, int]]
"""Files with a line of each."""


def add(
    brain: Brain,
    text: str,
    *,
    type: str = KnowledgeType.PATTERN,
    domain: str = "general",
    tags: Sequence[str] = (),
    title: str | None = None,
    confidence: float = 0.8,
    report: Callable[[Mapping[str, int]], None] = lambda counts: None,
) -> tuple[str, str]:
    """Keep a text as a new unit, committed; return its id and path. `report` receives the counts of redacted kinds."""
    from nugget.brain.filing import add_unit

    path = add_unit(
        brain.path, text, type=type, domain=domain, tags=tags, title=title, confidence=confidence,
        now=datetime.now(UTC), allow=allow_list(brain.settings), report=report,
    )  # fmt: skip
    make_current(brain)
    unit = load(brain.path, path).unit
    return unit.id if unit else path, path


def forget(brain: Brain, ref: str) -> tuple[UnitMove, Places]:
    """Take a unit out for good; return what changed, and the golden questions that expect it."""
    from nugget.brain.filing import forget_unit
    from nugget.brain.golden import expecting

    result = forget_unit(brain.path, ref.removeprefix("brain:"))
    make_current(brain)
    return result, expecting(brain.path, result.old_id)


def move(brain: Brain, ref: str, *, domain: str | None = None, name: str | None = None) -> tuple[UnitMove, Places]:
    """File a unit elsewhere or rename it; return what changed, and the golden questions that expect the old id."""
    from nugget.brain.filing import move_unit
    from nugget.brain.golden import expecting

    result = move_unit(brain.path, ref.removeprefix("brain:"), domain=domain, slug=name)
    make_current(brain)
    return result, expecting(brain.path, result.old_id) if result.new_id != result.old_id else []


def lint(brain: Brain, paths: Sequence[Path] = ()) -> list[Problem]:
    """Check knowledge files, all of them by default."""
    from nugget.brain.lint import lint as check

    return check(brain.path, paths, settings=brain.settings)


def import_notes(
    brain: Brain,
    path: Path | str,
    *,
    domain: str | None = None,
    limit: int = IMPORT_LIMIT,
    dry_run: bool = False,
) -> ImportResult:
    """Propose units from a folder of notes or an export, on a branch, with a pull request as for sessions.

    `domain` files all of it; otherwise folders do. At most `limit` units are proposed; `dry_run` writes nothing.
    Raises UsageError for an invalid path, domain or limit, BrainError and GitError; nothing was proposed then.
    """
    from nugget.importing import Import, import_and_publish

    if limit < 1:
        raise UsageError(f"limit must be at least 1, not {limit}.")
    run = Import(
        brain=brain.path, home=brain.environment.home, settings=brain.settings, similar=similar_units(brain),
        now=datetime.now(UTC).astimezone(), domain=validate_domain(domain) if domain else None, limit=limit,
        dry_run=dry_run,
    )  # fmt: skip
    done = import_and_publish(expanded(path), run, brain.environment)
    note_review(brain)
    return done


def promote(
    brain: Brain, nugget: Nugget, *, stale: StaleReason | None, type: str | None, domain: str, dry_run: bool
) -> CaptureResult:
    """Propose a nugget as a unit of the brain, on a branch."""
    from nugget import capture

    return capture.promote(nugget, _target(brain, dry_run=dry_run), type=type, domain=domain, stale=stale)


def propose(brain: Brain, *, folder: Path, **note: Any) -> CaptureResult:
    """Propose a note of an agent that works in `folder`, on a branch (`capture.propose_note`); the same one once.

    Raises UsageError for a note that cannot become a unit.
    """
    from nugget import capture
    from nugget.capture import ledger

    brain = brains.capturing(brain, folder)
    home = brain.environment.home
    with files.locked(ledger.lock_file(home, ledger.remember_brain(brain.path, home))):
        session = brain.environment.session or "unknown"
        return capture.propose_note(_target(brain), session=session, folder=folder, **note)


def _target(brain: Brain, *, dry_run: bool = False) -> ProposalTarget:
    from nugget.capture.compare import ProposalTarget

    return ProposalTarget(
        brain=brain.path, home=brain.environment.home, settings=brain.settings, similar=similar_units(brain),
        now=datetime.now(UTC), dry_run=dry_run,
    )  # fmt: skip


def proposals(brain: Brain) -> list[review.ProposalBranch]:
    """Return the proposals that wait, oldest first."""
    from nugget.capture import review

    return review.proposals(brain.path)


def proposal(brain: Brain, name: str | None) -> review.ProposalBranch:
    """Return one proposal, by a part of its branch's name, or the only one. Raises ReviewError."""
    from nugget.capture import review

    return review.show(brains.reviewed_in(brain, name).path, name)


def proposal_diff(brain: Brain, shown: review.ProposalBranch) -> str:
    """Return a proposal as a diff."""
    from nugget.capture import review

    return review.diff(brains.reviewed_in(brain, shown.branch).path, shown)


def decide(
    brain: Brain,
    name: str | None = None,
    *,
    expect_sha: str | None = None,
    accept: Sequence[str] | None = (),
    reject: Sequence[str] | None = (),
    edits: Mapping[str, str] | None = None,
) -> review.Decided:
    """Accept, edit and reject units of a proposal in one act, and push; through its pull request if it has one.

    Units are named by id or path; None is all. `edits` are new texts of accepted units; secrets are taken out of them.
    With `expect_sha`, ConflictError if the proposal is no longer at that commit. Nothing is changed if it raises.
    """
    from nugget.capture import following, publish, review

    now, one = datetime.now(UTC), brains.reviewed_in(brain, name)
    environment, settings = brain.environment, one.settings
    allow = allow_list(settings)
    texts = {unit: redact(text, allow=allow).text for unit, text in (edits or {}).items()}
    accept, reject = (None if units is None else tuple(units) for units in (accept, reject))
    decision = review.Decision(accept=accept, reject=reject, edits=texts, expect_sha=expect_sha)
    if accept != () and is_trusted(environment, one.path):
        done = following.decide(one.path, name, decision, environment=environment, settings=settings, now=now)
    else:
        done = review.decide(one.path, name, decision, home=environment.home, now=now)
    if accept != ():
        make_current(one)
    note_review(brain)
    if done.rejected:
        closings = publish.close_pull_requests(one.path, environment=environment, settings=settings, now=now)
        obstacle = closings.local or next((each.reason for each in closings.failed), None)
        pending = f"Its pull request is still open: {obstacle} `nugget capture --publish` closes it."
        settled = [each for each in closings.publications if each.state == "settled"]
        closed = {each.url or each.branch: each.reason or "closed" for each in settled}
        done = replace(done, closed=closed, pending=done.pending or (pending if obstacle else None))
    return done


def accept(brain: Brain, name: str | None = None, *, units: Sequence[str] | None = None) -> review.Decided:
    """Merge a proposal, or some units of it, as `decide` does."""
    return decide(brain, name, accept=units)


def reject(brain: Brain, name: str | None = None, *, units: Sequence[str] | None = None) -> review.Decided:
    """Turn down a proposal, or some units of it, as `decide` does."""
    return decide(brain, name, reject=units)


def follow(brain: Brain, *, rebase: bool = False, if_due: bool = False) -> following.Followed | None:
    """Bring in what was decided on the remote, send what waits to be pushed, and bring the index in line.

    None without a remote, for a brain that the user does not trust, and with `if_due` if it was looked at lately.
    Raises GitError.
    """
    from nugget.capture import following

    now, environment = datetime.now(UTC), brain.environment
    if not (git.is_repository(brain.path) and remotes.find_remote(brain.path) and is_trusted(environment, brain.path)):
        return None
    if if_due and not following.is_due(brain.path, environment.home, now=now):
        return None
    done = following.follow(brain.path, environment=environment, settings=brain.settings, now=now, rebase=rebase)
    make_current(brain)
    return done


def make_current(brain: Brain) -> None:
    """Sync the brain's index with its files; every command that changed them does so before it reports.

    If the index cannot be written now, the next question syncs it.
    """
    with suppress(NuggetError, OSError, sqlite3.Error):
        brain.sync(in_passing=True)
    note_review(brain)


def note_review(brain: Brain) -> None:
    """Note how many proposals wait and were merged, in all brains, for the line that a session's start shows."""
    from nugget.capture import publish

    home = brain.environment.home
    file = Path(files.queue_folder(home)) / files.REVIEW_STATE
    with suppress(NuggetError, OSError):
        found = list(brains.waiting_in(brain))
        waiting = sum(len(proposed) for _, proposed in found)
        known = [one for its, _ in found for one in publish.publications(its.path, home=home).values()]
        merged = sum((one.state, one.reason) == ("settled", "merged") for one in known)
        with files.locked(file.with_suffix(".lock")):
            try:
                state = dict(json.loads(file.read_bytes()))
            except (OSError, ValueError):
                state = {}
            state.pop(str(brain.path), None)  # keep the latest last, where status lines look
            files.replace(file, json.dumps(state | {str(brain.path): [waiting, merged]}).encode())


def secret_lines(text: str) -> list[tuple[int, str]]:
    """Return the line and rule of each secret that redaction would take out of a text; no brain is needed."""
    return find_secrets(text, allow=allow_list(load_settings(read_environment())))


def leaks(brain: Brain) -> Iterator[dict[str, Any]]:
    """Yield the places where Nugget keeps a secret."""
    from nugget.upkeep.repair import find_leaks

    return find_leaks(brain.environment.home, brain.path, allow=allow_list(brain.settings))


def scrub(brain: Brain, known: Sequence[str], *, dry_run: bool) -> dict[str, list[str]]:
    """Take secrets out of everything that Nugget keeps: those that rules find, and those that are `known`.

    Archived sessions that were redacted by other rules are first redacted again.
    """
    from nugget.sources.sessions import redact_again
    from nugget.upkeep import repair

    home, allow = brain.environment.home, allow_list(brain.settings)
    again = {} if dry_run else redact_again(home, brain.settings)
    done = repair.scrub(home, brain.path, known, allow=allow, dry_run=dry_run)
    return {name: [*again.get(name, ()), *found] for name, found in done.items()}


def evaluate(
    brain: Brain, files: Sequence[Path], *, baseline: Path | None, threshold: float, accept: bool
) -> tuple[dict[str, Any], dict[str, Any] | None, bool]:
    """Ask the golden questions as `ask` does, without an LLM; return the run, its comparison, and whether it failed.

    A run that is not worse than the last one, or is accepted, is kept for the next comparison. Raises NuggetError if
    the named baseline cannot be read.
    """
    from nugget import evaluation
    from nugget.brain.filing import forgotten
    from nugget.brain.golden import read_golden

    (questions, problems), kept = read_golden(brain.path, files), brain.index_folder / "evals" / "last.json"
    is_local = brain.settings.retrieval.reranker.startswith("cross-encoder:")
    reranker, now = brain.reranker(None) if is_local else None, datetime.now(UTC)
    run = evaluation.evaluate(
        questions, lambda query: brain.ask(query, reranker=reranker, now=now, fresh=False, log=False),
        known=set(brain.index.unit_ids()), model=brain.embedder.model if brain.embedder else None, now=now,
        ranking=reranker.name if reranker else "calibrated", problems=problems,
        forgotten=forgotten(brain.path).ids,
    )  # fmt: skip
    earlier = None
    if baseline:
        earlier = evaluation.read_baseline(baseline)
        if earlier is None:
            raise NuggetError(f"There is no file {baseline}.", hint=f"Create it with: nugget eval --json > {baseline}")
    else:
        with suppress(NuggetError):  # the last run is derived and may be lost
            earlier = evaluation.read_baseline(kept)
    found = evaluation.compare(run, earlier, threshold=threshold) if earlier else None
    is_worse = bool(found and found["regressed"])
    if run["results"] and not baseline and (accept or not is_worse):
        evaluation.store(kept, run, partial=bool(files))
    is_wrong = any(problem["severity"] == "error" for problem in run["problems"])
    return run, found, is_wrong or (is_worse and not accept)


def asked_questions(brain: Brain, since: date | None = None) -> dict[str, Any]:
    """Return the questions asked of the brain, which units were used after them, and its coverage by answers."""
    entries = query_log.read(brain.environment.home, brain=brain.path, since=since, with_code=True)
    return query_log.report(entries, used=read_uses(brain.environment.home), unit_ids=brain.index.unit_ids())


def similar_units(brain: Brain) -> Similar:
    """Return a function that compares a unit with the brain by the cosine of its nearest candidates.

    Without an embedding model every candidate has similarity 0, and the shared words decide.
    """
    vectors: dict[str, NDArray[np.float32]] = {}

    def vector(text: str) -> NDArray[np.float32]:
        # Units of one session share neighbours.
        if text not in vectors and brain.embedder is not None:
            vectors[text] = next(iter(brain.embedder.embed([text])))
        return vectors[text]

    def similar(unit: Unit) -> list[tuple[Unit, float]]:
        text = f"{unit.title}\n{unit.body[:2000]}"
        hits = neighbours(brain, text)
        found = [brain.index.unit(hit.unit.id) or hit.unit for hit in hits]
        if brain.embedder is None or not found:
            return [(near, 0.0) for near in found]
        # A short new unit is often close to one part of a long one: both the whole and its best part are compared.
        wholes = [f"{near.title}\n{near.body[:2000]}" for near in found]
        parts = [f"{hit.unit.title}\n{hit.chunks[0].text if hit.chunks else ''}" for hit in hits]
        try:
            ours = vector(text)
            best = [
                max(float(ours @ vector(whole)), float(ours @ vector(part)))
                for whole, part in zip(wholes, parts, strict=True)
            ]
        except EmbeddingUnavailable:
            return [(near, 0.0) for near in found]
        return sorted(zip(found, best, strict=True), key=lambda pair: -pair[1])

    return similar


def neighbours(brain: Brain, text: str) -> Sequence[Hit]:
    """Return the brain's units that are nearest to a text."""
    query = Query(text, filter=Filter(sources=(SourceName.BRAIN,)), limit=NEIGHBOURS, budget_tokens=100_000)
    return brain.ask(query, log=False, alone=True).hits
