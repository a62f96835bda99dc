"""Offline extraction: knowledge from a session without a model."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from knowledge_files import shell

from nugget.config import Settings
from nugget.errors import TranscriptError
from nugget.extraction import requests, titles
from nugget.extraction.offline import MAX_UNITS, explain, extract_offline
from nugget.extraction.proposals import Proposal
from nugget.models import Event, EventKind, KnowledgeType, Session, Speaker
from nugget.redaction import redact_session
from nugget.sources.claude_code import read_session
from nugget.sources.speakers import SAID_BY, said_in, split_pasted

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
PROMPT, REPLY, COMMAND, OUTPUT, EDIT = (
    EventKind.PROMPT, EventKind.REPLY, EventKind.COMMAND, EventKind.OUTPUT, EventKind.FILE_EDIT,
)  # fmt: skip
BUG, DECISION, BELIEF = KnowledgeType.BUG, KnowledgeType.DECISION, KnowledgeType.BELIEF


def said(text: str, kind: EventKind = REPLY, **values: object) -> Event:
    speaker, origin = SAID_BY[kind]
    return Event(kind=kind, text=text, speaker=speaker, origin=origin, **values)  # type: ignore[arg-type]


def prompt(text: str) -> list[Event]:
    """A prompt as the reader of transcripts tells typed and pasted text apart."""
    typed, pasted = split_pasted(text)
    parts = [said(typed, PROMPT)] if typed else []
    return [*parts, said(pasted, EventKind.PASTE)] if pasted else parts


def ran(command: str, output: str, *, ok: bool) -> list[Event]:
    call_id = f"{command}{output}"
    return [
        said(command, COMMAND, tool="Bash", call_id=call_id),
        said(output, OUTPUT, tool="Bash", call_id=call_id, ok=ok, exit_code=0 if ok else 1),
    ]


def edited(path: str, before: str = "a", after: str = "b") -> Event:
    return said(f"Edit {path}", EDIT, tool="Edit", path=path, before=before, after=after, ok=True)


def session_of(*parts: Event | Sequence[Event]) -> Session:
    events = [event for part in parts for event in ([part] if isinstance(part, Event) else part)]
    numbered = tuple(replace(event, uuid=event.uuid or f"u{number}") for number, event in enumerate(events))
    return Session(id="s1", agent="claude-code", path="s1.jsonl", events=numbered, cwd="/home/robin/src/shop")


def extract(*parts: Event | Sequence[Event]) -> list[Proposal]:
    return extract_offline(session_of(*parts), now=NOW)


CHATTER = """\
Let me look at the file to understand how the cache works.
Now I'll run the tests to make sure everything passes.
**Alternatively**, you could file a bug report on GitHub - `.zshenv` should be included since it's always sourced.
Good question! Let me check that first. I've committed the change and pushed it to your branch.
Task 8 is complete. Moving on to Task 9. Would you like me to open a pull request?
Here's a summary of what I changed:
"""


@pytest.mark.proves("EXT-JUNK")
@pytest.mark.parametrize(
    "talk",
    [
        [*prompt("do you know why the shell never sources ~/.zshrc"), *(said(line) for line in CHATTER.splitlines())],
        [*prompt("the modal must always close when I click outside of it, fix that please"), said("Done.")],
        [*prompt("fix the lint errors"), *ran("make lint", "app.go:19:13: G304 (gosec)", ok=False), edited("app.go"),
         *ran("make lint", "0 issues", ok=True), said("Fixed the lint errors. Lint is clean now.")],
    ],
)  # fmt: skip
def test_plans_status_reports_small_talk_and_requests_give_no_units(talk):
    assert extract(talk) == []


@pytest.mark.proves("EXT-CAUSE")
def test_a_root_cause_becomes_a_bug_with_its_reason_and_with_the_fix_told_beside_it():
    text = (
        "Found it! The root cause is that `os.Chdir()` changes the working directory of the whole process, "
        "so tests that run with `t.Parallel()` see each other's folder. Let me fix that."
    )
    passed = ran("go test ./...", "", ok=True)
    for fix in ("", "Every cache key must begin with the test, because two suites share one Redis."):
        told = said(f"{text} The fix: {fix}" if fix else text)
        [unit] = [one.unit for one in extract(prompt("main is red, why?"), told, edited("x_test.go"), passed)]
        assert unit.title.startswith("`os.Chdir()` changes the working directory of the whole process")
        assert "see each other's folder" in unit.body and "Let me fix" not in unit.body and fix in unit.body
        assert unit.type == BUG and unit.evidence[0].records == ("u1",)


@pytest.mark.proves("EXT-CONSTRAINT")
@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("Always store the idempotency key before the first attempt, otherwise a retry charges twice.", "charges"),
        ("yeah, don't log the webhook payload, it contains card holder names", "card holder"),
        ("No. Never mock the database, we got burned when mocks hid a broken migration", "burned"),
        ("Merk dir: Migrationen müssen immer rückwärtskompatibel sein, sonst bricht der Deploy.", "sonst bricht"),
        ("Il ne faut jamais écrire le jeton dans les logs, car ils sont partagés avec le support.", "partagés"),
        ("Nunca guardes la clave en el disco, porque los servidores se clonan.", "porque"),
        ("トークンは絶対にログに書かないでください。顧客名が含まれるからです。", "顧客名"),
        ("绝不要把令牌写进日志，因为里面有客户的名字。", "因为"),
    ],
)
def test_a_rule_of_the_person_becomes_a_belief_with_its_reason(rule, reason):
    (proposal,) = extract(prompt(rule), said("You're right."), edited("a.py"))
    assert (proposal.reason, proposal.unit.type) == ("You said so", BELIEF)
    assert reason in proposal.unit.body
    assert proposal.unit.evidence[0].speaker is Speaker.USER and proposal.unit.evidence[0].quote in rule


@pytest.mark.proves("EXT-DECISION")
def test_a_correction_of_the_agent_is_a_decision_filed_under_the_repository(tmp_path):
    correction = "no, use the Redis client from `lib/cache.py` instead, an in-memory cache breaks with several workers"
    talk = prompt("add a cache"), said("I will add an in-memory dict cache."), prompt(correction), said("You're right.")
    (folder := tmp_path / "worktree/web").mkdir(parents=True)
    shell(folder.parent, "init", "-q")
    shell(folder.parent, "remote", "add", "origin", "git@github.com:acme/shop.git")
    session = session_of(*talk, edited("svc.py"), ran("pytest", "ok", ok=True))
    [proposal] = extract_offline(replace(session, cwd=str(folder)), now=NOW)
    assert (proposal.unit.type, proposal.unit.domain) == (DECISION, "projects/shop")
    assert proposal.unit.title == "Use the Redis client from `lib/cache.py` instead"
    assert "several workers" in proposal.unit.body


@pytest.mark.proves("EXT-DECISION")
def test_an_answer_in_a_dialog_is_a_decision_with_its_alternatives():
    dialog = {"tool": "AskUserQuestion", "call_id": "c"}
    options = '[{"label": "GitHub App (Recommended)"}, {"label": "Personal access token"}]'
    question = f'questions: [{{"question": "Which token pushes to the tap?", "options": {options}}}]'
    answer = said('"Which token pushes to the tap?"="GitHub App (Recommended)"', PROMPT, **dialog)
    [proposal] = extract(prompt("release to the tap"), said(question, EventKind.TOOL_CALL, **dialog), answer)
    assert "GitHub App" in proposal.unit.title and proposal.unit.alternatives == ("Personal access token",)
    assert [said_in(answer, at, at + 6)[0] for at in (1, 33)] == [Speaker.AGENT, Speaker.USER]


@pytest.mark.proves("EXT-REFUTED")
@pytest.mark.parametrize(
    "talk",
    [
        [
            *prompt("make it faster"),
            said("The slowness is caused by the JSON encoder, so `orjson` must replace it."), edited("enc.py"),
            *prompt("no, revert that"), said("You're right, I reverted the change."),
            *ran("git checkout -- enc.py", "", ok=True),
        ],
        [
            *prompt("## Review\n**Suggestion:** The retry loop must always use backoff, because retries overload it.\n"
                    "**Nitpick:** Consider renaming `x`.\n"),
            said("I disagree."), *prompt("so all pnpm projects have to have a pnpm-workspace.yaml"), said("No, one."),
        ],
    ],
)  # fmt: skip
def test_what_was_reverted_or_pasted_and_refused_gives_no_unit(talk):
    assert extract(talk) == []


_INSTALLS = (
    *prompt("the image still does not build"),
    said("The root cause is that `npm ci` crashes in this image, so `npm install` must be used instead."),
    edited("Containerfile", "RUN npm ci", "RUN npm install"),
    *ran("make test", "ok", ok=True),
)


@pytest.mark.proves("EXT-REFUTED")
@pytest.mark.parametrize(
    "later",
    [
        [*prompt("no, the cache is broken"), said("The cache was stale.")],
        [*prompt("it fails as before"), said("Then npm is fine."),
         edited("Containerfile", "RUN npm install", "RUN npm ci")],
        [said("Still the same crash.")], [*prompt("add a label"), edited("Containerfile"), *prompt("it still fails")],
    ],
    ids=["objection", "edit put back", "did not help", "nor did the next attempt"],
)  # fmt: skip
def test_what_the_session_takes_back_later_gives_no_unit(later):
    assert "npm" in extract(_INSTALLS)[0].unit.title
    assert not [one for one in extract(_INSTALLS, later) if "npm install" in one.unit.body]


@pytest.mark.proves("EXT-REFUTED")
def test_of_two_choices_about_one_subject_the_later_one_is_kept():
    choices = "We decided to use port 8080 for the server.", "We now use port 9090 for the server instead of 8080."
    [proposal] = extract(*map(prompt, choices))
    assert "9090" in proposal.unit.title and proposal.unit.alternatives == ("8080",)
    assert f"about the subject of “{proposal.unit.title}”" in "".join(explain(session_of(*map(prompt, choices))))


@pytest.mark.proves("EXT-VERBATIM", "EXT-REAL")
def test_every_quote_of_every_real_session_is_verbatim(shared_data):
    units = 0
    for file in sorted((shared_data / "transcripts").rglob("*.jsonl")):
        try:
            session, _ = redact_session(read_session(file), settings=Settings())
        except TranscriptError:
            continue
        proposals = extract_offline(session, now=NOW)
        texts = {event.uuid: "" for event in session.events}
        for event in session.events:
            texts[event.uuid] += event.text
        assert len(proposals) <= MAX_UNITS
        for unit in (proposal.unit for proposal in proposals):
            units += 1
            assert unit.evidence
            assert all(evidence.quote in texts[evidence.records[0]] for evidence in unit.evidence if evidence.records)
            assert len(unit.title) <= titles.TITLE_CHARS and not unit.title.endswith("…")
    assert units > 50


@pytest.mark.parametrize(
    ("reply", "prompted", "title", "body"),
    [
        ("Should I use turborepo or nx, and pnpm or yarn?",
         "turborepo and pnpm. nx is too much magic, we tried it in 2024 and nobody could debug it",
         "Use turborepo and pnpm", "nx is too much magic"),
        ("I can use WebSockets or server-sent events. I'd suggest WebSockets since they are bidirectional.",
         "SSE. our proxy (an old nginx) kills websockets after 60s",
         "Use SSE: our proxy (an old nginx) kills websockets after 60s", ""),
    ],
)  # fmt: skip
def test_a_pick_among_options_in_prose_is_a_decision(reply, prompted, title, body):
    proposals = extract(prompt("how shall we set it up?"), said(reply), prompt(prompted), edited("setup.toml"))
    chosen = next(proposal.unit for proposal in proposals if proposal.unit.title == title)
    assert chosen.type is DECISION and body in chosen.body


def test_thanks_for_an_answer_accept_no_offer():
    reply = "The cookie lives for 15 minutes and each request renews it. Let me know if you want details on any of it!"
    proposals = extract(prompt("how does auth work?"), said(reply), prompt("great thanks, now add a logout button"))
    assert not any("details" in proposal.unit.title for proposal in proposals)


@pytest.mark.proves("EXT-DECISION")
def test_an_accepted_offer_is_a_decision_about_the_file_that_was_changed_for_it():
    offer = said("I recommend Postgres for the job queue, because Redis loses jobs when it restarts.")
    (proposal,) = extract(prompt("where?"), offer, prompt("ok do that"), edited("/home/robin/src/shop/jobs/queue.py"))
    assert proposal.reason == "The agent offered it and you agreed" and "Postgres" in proposal.unit.title
    assert (proposal.unit.type, proposal.unit.scope and proposal.unit.scope.path) == (DECISION, "jobs/queue.py")


@pytest.mark.proves("EXT-TITLE")
@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Non, utilise Redis pour le cache", "Utilise Redis pour le cache"),
        ("いや、Redisを使ってください", "Redisを使ってください"),
        ("fix the test, the code is right", "The code is right"),
        ("i want the menu to open on the left", "The menu should open on the left"),
        ("One heads-up for the same symptom from another source: `log.ts` uses pino, which writes to stdout itself",
         "`log.ts` uses pino, which writes to stdout itself"),
        ("The critical detail: `flush()` runs before the lock is taken", "`flush()` runs before the lock is taken"),
        ("根本原因总结：缓存没有锁，所以并发请求会覆盖彼此的结果", "缓存没有锁，所以并发请求会覆盖彼此的结果"),
        ("Move the keys to `vault/`, but don't copy any of the old ones into it - they were all leaked to a public log",
         "Move the keys to `vault/`, but don't copy any of the old ones into it"),
        ("`pip install -e .` 命令的作用是什么? 如何理解", ""),
        ("I see the cache is slow" + ": we see the cache is slow for us, but I see what is done" * 20, ""),
        ("Always run `make db (test, dev)` before the suite because it fails otherwise on the shared database",
         "Always run `make db (test, dev)` before the suite"),
        ("Never set `timeout = 30 because of X` in the production settings unless the gateway team agreed before", ""),
    ],
)  # fmt: skip
def test_a_title_is_one_whole_statement_without_what_leads_to_it_or_there_is_none(text, title):
    assert titles.title_of(requests.wish(text), text) == title
    assert not any(map(titles.sentence, ("https://a.org/b", "const one = two()", "Content: many(vec![.", "`` (`")))
