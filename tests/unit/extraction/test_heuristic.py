"""Heuristic extraction: knowledge from a session without an LLM."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from paths import REPOSITORY

from nugget.config import Settings, load_settings, read_environment
from nugget.errors import EmbeddingUnavailable, LLMUnavailable, TranscriptError, UsageError
from nugget.extraction import extract as run_extraction
from nugget.extraction.fixes import find_fixes, signature_of
from nugget.extraction.heuristic import MAX_UNITS, extract_heuristic
from nugget.extraction.passages import passages, sentences
from nugget.extraction.proposals import Proposal
from nugget.extraction.wording import TITLE_CHARS, title_from
from nugget.infra.resources import resource
from nugget.models import Event, EventKind, KnowledgeType, Session
from nugget.sources.claude_code import read_session
from nugget.sources.speakers import SAID_BY

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
PROMPT, REPLY, COMMAND, OUTPUT, EDIT = (
    EventKind.PROMPT, EventKind.REPLY, EventKind.COMMAND, EventKind.OUTPUT, EventKind.FILE_EDIT,
)  # fmt: skip


@pytest.fixture(scope="module")
def embed() -> Callable[[Sequence[str]], Any]:
    """The real model."""
    import numpy as np

    from nugget.infra.embedding import open_embedder

    environment = read_environment()
    embedder = open_embedder(load_settings(environment), environment)
    assert embedder is not None
    return lambda texts: np.stack(list(embedder.embed(texts)))


def session_of(*events: Event, cwd: str = "/home/robin/src/shop") -> Session:
    numbered = tuple(
        Event(**{name: getattr(event, name) for name in event.__slots__} | {"uuid": event.uuid or f"u{number}"})
        for number, event in enumerate(events)
    )
    return Session(id="s1", agent="claude-code", path="s1.jsonl", events=numbered, cwd=cwd)


def said(text: str, kind: EventKind = REPLY) -> Event:
    speaker, origin = SAID_BY[kind]
    return Event(kind=kind, text=text, speaker=speaker, origin=origin)


def extract(*events: Event) -> list[Proposal]:
    return extract_heuristic(session_of(*events), embed=None, now=NOW)


def ran(call_id: str, command: str, output: str, *, ok: bool) -> list[Event]:
    return [
        Event(kind=COMMAND, text=command, tool="Bash", call_id=call_id),
        Event(kind=OUTPUT, text=output, tool="Bash", call_id=call_id, ok=ok, exit_code=0 if ok else 1),
    ]


def edited(path: str, before: str, after: str) -> Event:
    return Event(kind=EDIT, text=f"Edit {path}", tool="Edit", path=path, before=before, after=after, ok=True)


CHATTER = """\
Let me look at the file to understand how the cache works.
Now I'll run the tests to make sure everything passes.
All tests pass and lint is clean.
Good question! Let me check that first.
I've committed the change and pushed it to your branch.
Task 8 is complete. Moving on to Task 9.
Would you like me to open a pull request?
Here's a summary of what I changed:
Done.
"""


@pytest.mark.proves("EXT-JUNK")
def test_plans_status_reports_and_small_talk_give_no_units() -> None:
    assert extract(said("fix the tests please", PROMPT), *(said(line) for line in CHATTER.splitlines())) == []


@pytest.mark.proves("EXT-CAUSE")
def test_a_root_cause_becomes_a_bug_with_its_reason() -> None:
    text = (
        "Found it! The root cause is that `os.Chdir()` changes the working directory of the whole process, "
        "so tests that run with `t.Parallel()` see each other's folder. Let me fix that."
    )
    (proposal,) = extract(said("main is red, why?", PROMPT), said(text))
    unit = proposal.unit
    assert unit.type == KnowledgeType.BUG
    assert unit.title.startswith("`os.Chdir()` changes the working directory of the whole process")
    assert "Let me fix" not in unit.body
    assert "see each other's folder" in unit.body
    assert unit.evidence[0].records == ("u1",)
    assert unit.session == "s1"


@pytest.mark.proves("EXT-CONSTRAINT")
@pytest.mark.parametrize(
    "rule",
    [
        "Always store the idempotency key before the first attempt, otherwise a retry charges twice.",
        "never log the webhook payload, it contains card holder names",
        "Don't mock the database in integration tests, use the container instead.",
        "From now on every migration must be reversible and must not lock the orders table.",
    ],
)
def test_what_the_person_rules_becomes_a_unit(rule: str) -> None:
    (proposal,) = extract(said(rule, PROMPT), said("Understood."))
    assert proposal.reason == "You said so"
    assert proposal.unit.type == KnowledgeType.PATTERN
    assert rule.startswith(proposal.unit.evidence[0].quote[:40])


@pytest.mark.proves("EXT-JUNK")
@pytest.mark.parametrize(
    "request_", ["commit this", "can you also add a test for the parser?", "ok, works. great", "let's start with #89"]
)
def test_a_request_for_the_moment_is_no_rule(request_: str) -> None:
    assert extract(said(request_, PROMPT), said("Sure.")) == []


@pytest.mark.proves("EXT-JUNK")
@pytest.mark.parametrize(
    "line",
    [
        "Writing patch to /tmp/tmp-2096-wwz1XP8ai9Xr/pull.patch only new issues on pull_request",
        "90-109 lines are duplicate of `cmd/telemetry/detached_test.go:111-130` because it returns early (dupl)",
        "2026-04-01T10:11:12Z the worker never returns because `connect()` requires a certificate",
        "src/agent.ts(217,9): error TS2322: Type 'press' is not assignable because it requires 'type'",
        "The `APIKey` and `Endpoint` fields have been removed from `EventPayload`",
        "`strategy/manual_commit_hooks.go` - Added `sessionHasNewContent` with a `signature` parameter",
        '"Do you want me to update the plan with this GitHub App instead of the token',
        "**Solved**: The root cause was identified by tracing the flow from hook input through to persistence",
    ],
)
def test_logs_remarks_of_linters_change_reports_and_offers_give_no_units(line: str) -> None:
    assert extract(said("main is red, why is that?", PROMPT), said(line)) == []
    assert extract(said(line, PROMPT), said("Understood.")) == []


@pytest.mark.proves("EXT-FIX")
def test_the_remark_of_a_linter_is_no_bug() -> None:
    assert not any(
        proposal.reason.startswith("A command failed")
        for remark in ("shop/price.go:12:2: undefined: regexp", "price.go:3:1: if block can be inverted (gocritic)")
        for proposal in extract(
            *ran("1", "golangci-lint run", f"{remark}\n1 issues", ok=False),
            edited("price.go", "a", "b"),
            *ran("2", "golangci-lint run", "0 issues", ok=True),
        )
    )


@pytest.mark.proves("EXT-DECISION")
@pytest.mark.parametrize(
    "text",
    [
        "Decision: we chose postgres for the queue over sqlite, because several workers must write at once.",
        "We decided to keep the archive on disk instead of in the database.",
        "we're going with pnpm rather than npm, since the lock file must be shared",
    ],
)
def test_what_the_person_says_was_decided_is_a_decision(text: str) -> None:
    (proposal,) = extract(said(text, PROMPT), said("Understood."))
    assert proposal.unit.type == KnowledgeType.DECISION
    assert proposal.reason == "You said so"


@pytest.mark.proves("EXT-DECISION")
def test_a_decision_keeps_its_reason_and_what_was_turned_down() -> None:
    text = (
        "I would still choose PostgreSQL. The insert happens in the same transaction as the effect, so both happen or "
        "neither. I rejected Redis because the marker and the effect cannot be committed together."
    )
    (proposal,) = extract(said("We already run Redis. What speaks against it?", PROMPT), said(text))
    assert proposal.unit.type == KnowledgeType.DECISION
    assert "Redis" in proposal.unit.body


@pytest.mark.proves("EXT-DECISION")
def test_an_answer_in_a_dialog_is_a_decision_with_its_alternatives() -> None:
    asked = Event(
        kind=EventKind.TOOL_CALL, tool="AskUserQuestion", call_id="c",
        text='questions: [{"question": "Which token pushes to the tap?", "options": [{"label": "GitHub App '
             '(Recommended)"}, {"label": "Personal access token"}]}]',
    )  # fmt: skip
    answer = Event(
        kind=PROMPT,
        tool="AskUserQuestion",
        call_id="c",
        text='"Which token pushes to the tap?"="GitHub App (Recommended)"',
    )
    (proposal,) = extract(said("release to the tap", PROMPT), asked, answer)
    assert proposal.unit.type == KnowledgeType.DECISION
    assert proposal.unit.title == "GitHub App: Which token pushes to the tap"
    assert proposal.unit.alternatives == ("Personal access token",)


@pytest.mark.proves("EXT-FIX")
def test_a_failure_with_its_fix_becomes_a_unit() -> None:
    events = [
        said("lint the project", PROMPT),
        *ran("1", "make lint", "app.go:19:13: G304: Potential file inclusion via variable (gosec)", ok=False),
        edited("/w/app.go", "os.Open(p)", "root.Open(p)"),
        *ran("2", "make lint", "0 issues", ok=True),
    ]
    (proposal,) = extract(*events)
    assert proposal.unit.type == KnowledgeType.BUG
    assert proposal.unit.title == "G304: Potential file inclusion via variable (gosec)"
    assert "- os.Open(p)" in proposal.unit.body
    assert "+ root.Open(p)" in proposal.unit.body


@pytest.mark.proves("EXT-FIX")
def test_a_command_that_had_to_be_written_differently() -> None:
    events = [
        said("show the change", PROMPT),
        *ran("1", "gh pr diff --stat", "unknown flag: --stat\n\nUsage: gh pr diff", ok=False),
        *ran("2", "gh pr diff --name-only", "a.py", ok=True),
    ]
    (proposal,) = extract(*events)
    assert proposal.unit.title == "`gh pr diff --stat` fails: unknown flag: --stat"
    assert "What worked instead: `gh pr diff --name-only`" in proposal.unit.body


@pytest.mark.proves("EXT-FIX")
def test_a_test_that_was_written_to_fail_is_no_bug() -> None:
    events = [
        said("Now run the test to see that it fails (TDD red phase)."),
        *ran("1", "pytest -q", "E   AssertionError: assert 1 == 2", ok=False),
        edited("a.py", "1", "2"),
        *ran("2", "pytest -q", "1 passed", ok=True),
    ]
    assert find_fixes(session_of(*events).events) == []


def test_the_explanation_of_a_failure_and_its_fix_are_one_unit() -> None:
    events = [
        said("run the load test", PROMPT),
        *ran("1", "pytest -q", "E   TimeoutError: QueuePool limit of size 5 overflow 10 reached", ok=False),
        said("The pool is exhausted because the early return leaks a session: it returns before `session.close()`."),
        edited("a.py", "s = Session()", "with scope() as s:"),
        *ran("2", "pytest -q", "41 passed", ok=True),
    ]
    (proposal,) = extract(*events)
    assert proposal.unit.title.startswith("The pool is exhausted because the early return leaks a session")
    assert "QueuePool limit" in proposal.unit.body
    assert "+ with scope() as s:" in proposal.unit.body


@pytest.mark.parametrize(
    ("output", "first"),
    [
        ("x\nerror TS2322: Type 'a' is not assignable", "error TS2322: Type 'a' is not assignable"),
        ("--- FAIL: TestX\n    x_test.go:12: want 1, got 2\nFAIL", "x_test.go:12: want 1, got 2"),
        ("\x1b[31mfatal: not a git repository\x1b[0m", "fatal: not a git repository"),
        ("all fine", None),
    ],
)
def test_the_telling_line_of_a_failure_is_found(output: str, first: str | None) -> None:
    assert next(iter(signature_of(output)), None) == first


@pytest.mark.proves("EXT-VERBATIM", "EXT-REAL")
def test_every_quote_of_every_real_session_is_verbatim(shared_data: Path) -> None:
    units = 0
    for file in sorted((shared_data / "transcripts").rglob("*.jsonl")):
        try:
            session = read_session(file)
        except TranscriptError:
            continue
        proposals = extract_heuristic(session, embed=None, now=NOW)
        texts = {event.uuid: "" for event in session.events}
        for event in session.events:
            texts[event.uuid] += event.text
        assert len(proposals) <= MAX_UNITS
        for proposal in proposals:
            unit = proposal.unit
            units += 1
            assert unit.evidence
            assert all(evidence.quote in texts[evidence.records[0]] for evidence in unit.evidence if evidence.records)
            assert 12 <= len(unit.title) <= TITLE_CHARS + 20
            assert unit.title.count("`") % 2 == 0
            assert "\n" not in unit.title
            assert 0.0 <= unit.confidence <= 1.0
        assert len({proposal.unit.id for proposal in proposals}) == len(proposals)
    assert units > 150


@pytest.mark.proves("EXT-REAL")
def test_a_long_real_session_with_the_real_model(shared_data: Path, embed: Callable[[Sequence[str]], Any]) -> None:
    (file,) = (shared_data / "transcripts" / "claude-code").glob("2026-02-04_0c97beba_*[0-9a-f].jsonl")
    proposals = extract_heuristic(read_session(file), embed=embed, now=NOW)
    titles = " ".join(proposal.unit.title for proposal in proposals)
    assert "os.Chdir" in titles
    assert all(proposal.unit.domain == "coding/go" for proposal in proposals)


@pytest.mark.proves("EXT-COVERAGE")
def test_half_of_the_learnings_of_real_sessions_are_found_with_little_junk(
    shared_data: Path, embed: Callable[[Sequence[str]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    benchmark = importlib.import_module("extraction")
    assert benchmark.coverage(embed, embed)[0.6] >= 0.5
    assert benchmark.junk(embed) <= 1 / 3


def test_the_demo_session_gives_what_was_learned_in_it(embed: Callable[[Sequence[str]], Any]) -> None:
    proposals = extract_heuristic(read_session(resource("demo/session.jsonl")), embed=embed, now=NOW)
    text = " ".join(proposal.unit.title + proposal.unit.body for proposal in proposals).lower()
    for learned in ("idempotency key", "raw body", "redis", "session.close()", "never log the webhook payload"):
        assert learned in text, learned


def test_extract_chooses_the_method_and_sums_up_the_session() -> None:
    replies = [said("The cause is that `a` breaks `b`."), said("and?", PROMPT)]
    session = session_of(said("why is main red?", PROMPT), *replies)
    made = run_extraction(session, method="auto", settings=Settings(), now=NOW)
    assert made.method == "heuristic"
    assert made.summary == "why is main red? (and 1 more prompts)"
    with pytest.raises(UsageError, match="no extraction method"):
        run_extraction(session, method="magic", settings=Settings(), now=NOW)
    with pytest.raises(LLMUnavailable, match="needs an LLM"):
        run_extraction(session, method="generative", settings=Settings(), now=NOW)


EVENTS = st.builds(
    Event,
    kind=st.sampled_from(EventKind),
    text=st.text(max_size=200) | st.sampled_from(CHATTER.splitlines() + ["The issue is that `a` breaks because of b."]),
    uuid=st.sampled_from(["a", "b", ""]),
    tool=st.sampled_from([None, "Bash", "AskUserQuestion"]),
    call_id=st.sampled_from([None, "c1", "c2"]),
    ok=st.sampled_from([None, True, False]),
    path=st.sampled_from([None, "/w/a.py", "b"]),
)


@examples(max_examples=200, deadline=None)
@given(st.lists(EVENTS, max_size=12))
def test_no_session_raises(events: list[Event]) -> None:
    session = Session(id="s", agent="claude-code", path="p", events=tuple(events))
    assert isinstance(extract_heuristic(session, embed=None, now=NOW), list)


@given(st.text(max_size=400))
def test_sentences_are_slices_of_the_text(text: str) -> None:
    for sentence in sentences(text, 0, len(text)):
        assert text[sentence.start : sentence.end] == sentence.text


@given(st.text(max_size=300))
def test_a_title_is_one_short_line(text: str) -> None:
    title = title_from(text)
    assert "\n" not in title
    assert len(title) <= TITLE_CHARS + 1


def test_code_tables_and_trailers_are_no_passages() -> None:
    text = "Intro line here.\n```go\n// must never run\n```\n| a | b |\n\nCo-Authored-By: X\n- item one is here\n"
    found = [part.sentences[0].text for part in passages(session_of(said(text)))]
    assert found == ["Intro line here.", "item one is here"]


def test_lines_wrapped_by_hand_are_one_passage() -> None:
    text = "The handler verifies the parsed body instead of the bytes that\nwere sent, so the signature differs.\n"
    (part,) = passages(session_of(said(text)))
    assert part.sentences[0].text == text.strip()


def test_where_the_model_has_no_vectors_the_cue_phrases_choose_alone() -> None:
    def unavailable(texts: Sequence[str]) -> Any:
        raise EmbeddingUnavailable("no vectors now")

    session = session_of(
        said("Why do webhooks fail in staging?", PROMPT),
        said("The root cause is that `proxy.py` re-serialises the JSON body, so the signature never matches."),
    )
    by_words = extract_heuristic(session, embed=None, now=NOW)
    assert by_words and extract_heuristic(session, embed=unavailable, now=NOW) == by_words
