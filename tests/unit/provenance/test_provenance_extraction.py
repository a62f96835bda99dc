"""From sessions to nuggets without an LLM, once, again when a session grows; exported and imported."""

import io
import json
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from replay import STARTED, Agent, change_by_hand, commit, git, make_repository

from nugget.cli import run
from nugget.config import Settings, read_environment
from nugget.infra.workspace import find_workspace
from nugget.models import Evidence, Scope
from nugget.models.nuggets import FileTouch, Nugget, NuggetType, SessionRecord, TouchAction
from nugget.provenance.extraction import ExtractedSession, Extractor, extract_sessions, note_tunings
from nugget.provenance.inventory import import_lines
from nugget.sources.nugget_store import read_session_file, session_files, write_session
from nugget.sources.sessions import find_sessions

NOW = datetime(2026, 3, 5, tzinfo=UTC)
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = make_repository(tmp_path / "shop", remote="https://github.com/acme/shop")
    change_by_hand(folder, "src/auth.py", "def login():\n    return None\n")
    change_by_hand(folder, "pyproject.toml", '[project]\nname = "shop"\ndependencies = ["flask>=3"]\n')
    change_by_hand(folder, "README.md", "# Shop\n", at=STARTED - timedelta(days=1))
    return folder


@pytest.fixture
def agent(repo: Path, isolated_home: Path) -> Agent:
    return Agent(repo=repo, claude_config=isolated_home / ".claude")


def extractor(isolated_home: Path, **values: object) -> Extractor:
    given = {"home": isolated_home / ".nugget", "settings": Settings(), "now": NOW}
    return Extractor(**(given | values))  # type: ignore[arg-type]


def extracted(isolated_home: Path, **values: object) -> list[ExtractedSession]:
    found = list(find_sessions(read_environment(), ["claude-code"]))
    return list(extract_sessions(found, extractor(isolated_home, **values)))


def records(isolated_home: Path) -> list[SessionRecord]:
    return [read_session_file(file)[0] for file in session_files(isolated_home / ".nugget")]


def nuggets(isolated_home: Path, *types: NuggetType) -> list[Nugget]:
    found = [nugget for record in records(isolated_home) for nugget in record.nuggets]
    return [nugget for nugget in found if not types or nugget.type in types]


def said(found: Sequence[Nugget]) -> list[tuple[str, str | None, float]]:
    return [(one.summary, one.scope.path, one.confidence) for one in found]


@pytest.mark.proves("PROVENANCE-INTENTS")
def test_the_first_request_is_the_intent_of_the_session_and_files_have_their_own(agent, isolated_home):
    for number, chat in enumerate((
        "That is wrong.", "ok continue", "The issue is the linter, not db:generate, I think.", "Das ist falsch so.",
        "We merged that. We need a new one", "The label shows one word only.", "C'est encore faux", "don't commit yet",
        "Never mind, I found it.", "we can't do this today because Tom is out", "Take a look", '"Which?"="The first"',
    )):  # fmt: skip
        agent.prompt(chat)
        agent.write(f"{number}.py", "A = 1\n")
    agent.prompt("Hi Claude, could you please add JWT authentication? Put the key code into src/keys.py.")
    agent.write("src/keys.py", "KEY = 1\n")
    agent.edit("src/auth.py", "None", "KEY")
    agent.prompt("now delete the readme")
    agent.run("git rm -q README.md")
    assert [one.state for one in extracted(isolated_home)] == ["extracted"]
    assert said(nuggets(isolated_home, NuggetType.INTENT, NuggetType.CONSTRAINT, NuggetType.DECISION)) == [
        ("Add JWT authentication. Put the key code into src/keys.py.", None, 0.6),
        ("Created keys.py: Put the key code into src/keys.py.", "src/keys.py", 0.7),
        ("Changed auth.py: Add JWT authentication. Put the key code into src/keys.py.", "src/auth.py", 0.7),
        ("Deleted README.md: Delete the readme", "README.md", 0.7),
    ]
    assert [(one.session, one.branch, one.records) for one in records(isolated_home)] == [(agent.session, "main", 44)]


@pytest.mark.proves("PROVENANCE-REASONS")
def test_sentences_that_give_a_reason_become_nuggets_of_their_type_at_the_file_they_are_about(agent, isolated_home):
    agent.prompt("Never log a token in src/auth.py, it contains the customer's name. Fix the login.")
    agent.reply("We chose JWT instead of session cookies because the service must stay stateless.")
    agent.edit("src/auth.py", "    return None", "def read_token(raw):\n    return raw")
    agent.prompt("We have a bug in src/auth.py, the last commit has `Gemini CLI` and I did not use gemini")
    agent.reply(
        "`read_token` must not be trusted with a skewed clock: it silently accepts expired tokens, because PyJWT checks"
        " no leeway by default."
    )
    agent.edit("src/auth.py", "return raw", "return checked(raw)")
    agent.run("echo pytest")
    agent.prompt("I don't want Redis for this, it is one more thing to run.")
    agent.reply(
        "As a workaround for the flaky clock in CI, `login_test` must freeze time until freezegun 2 is released,"
        " because the clock jumps there."
    )
    agent.write("tests/test_auth.py", "import freezegun\n")
    extracted(isolated_home)
    found = {one.type: one for one in nuggets(isolated_home) if one.type is not NuggetType.INTENT}
    constraint, decision = found[NuggetType.CONSTRAINT], found[NuggetType.DECISION]
    assert constraint.summary.startswith("Never log a token in src/auth.py") and constraint.scope.path == "src/auth.py"
    assert (decision.alternatives, decision.scope.path) == (("session cookies",), "src/auth.py")
    assert found[NuggetType.CAVEAT].scope.symbol == "read_token"
    assert ["Redis" in one.summary for one in nuggets(isolated_home, NuggetType.REJECTION)] == [True]
    assert "freeze time" in found[NuggetType.WORKAROUND].summary


@pytest.mark.proves("PROVENANCE-LANGUAGES")
@pytest.mark.parametrize(
    ("prompt", "constraint"),
    [
        ("Fix the login. Keep the hook sync because it has no loop.", "Keep the hook sync because it has no loop."),
        ("Repair the login. Never call v2 from the handlers till Q3.", "Never call v2 from the handlers till Q3."),
        ("Bitte die Anmeldung reparieren. Nie v2 aufrufen bis zur Migration.", "Nie v2 aufrufen bis zur Migration."),
        ("Répare tout. Ne jamais appeler v2 jusqu'à la migration.", "Ne jamais appeler v2 jusqu'à la migration."),
        ("Arregla el inicio de sesión. Nunca guardes la clave en el disco.", "Nunca guardes la clave en el disco."),
        ("Почини вход. Никогда не пиши токен в лог.", "Никогда не пиши токен в лог."),
        ("修复登录功能。绝不要把令牌写进日志。", "绝不要把令牌写进日志"),
        ("ログインを直して。トークンは絶対に書かないで。", "トークンは絶対に書かないで"),
    ],
)  # fmt: skip
def test_prompts_in_any_language_give_intents_and_constraints_with_their_end(agent, isolated_home, prompt, constraint):
    agent.prompt(prompt)
    agent.edit("src/auth.py", "None", "1")
    extracted(isolated_home)
    assert nuggets(isolated_home, NuggetType.INTENT)[0].summary == prompt
    found = nuggets(isolated_home, NuggetType.CONSTRAINT)
    assert [one.summary.rstrip(".") for one in found] == [constraint.rstrip(".")]
    assert (found[0].stale_after is not None) == any(word in prompt for word in ("Q3", "igration"))


@pytest.mark.proves("PROVENANCE-DEPENDENCIES")
def test_dependencies_come_from_manifests_and_package_commands_with_the_nearest_reason(agent, isolated_home):
    agent.prompt("We need PyJWT because the gateway signs with RS256.")
    agent.edit("pyproject.toml", '["flask>=3"]', '["flask>=3.1", "pyjwt>=2.8"]')
    agent.write("package.json", '{"name": "x", "version": "1.0.0", "dependencies": {"left-pad": "^1.0.0"}}')
    agent.edit("package.json", ', "dependencies": {"left-pad": "^1.0.0"}', ', "devDependencies": {"zod": "^3.22.0"}')
    extracted(isolated_home)
    assert [(one.summary, one.scope.path) for one in nuggets(isolated_home, NuggetType.DEPENDENCY)] == [
        ("Changed flask from >=3 to >=3.1", "pyproject.toml"),
        ("Added pyjwt >=2.8: We need PyJWT because the gateway signs with RS256.", "pyproject.toml"),
        ("Added zod ^3.22.0", "package.json"),
    ]  # fmt: skip


@pytest.mark.proves("PROVENANCE-TUNING")
def test_a_hand_that_changed_a_file_since_is_seen_by_its_hash_and_a_commit_of_an_agent_is_none(agent, isolated_home):
    agent.prompt("Add tokens with a time to live")
    agent.write("src/token.py", "import jwt\n\nTTL = 600\nSKEW = 5\nALGORITHM = 'RS256'\n")
    agent.write("src/other.py", "x = 1\ny = 2\nz = 3\n")
    agent.commit("Add tokens")
    extracted(isolated_home)
    workspace = find_workspace(agent.repo)
    assert note_tunings(workspace, extractor(isolated_home)) == 0
    later = agent.moment + timedelta(days=1)
    change_by_hand(agent.repo, "src/token.py", "import jwt\n\nTTL = 900\nSKEW = 5\nALGORITHM = 'RS256'\n", at=later)
    change_by_hand(agent.repo, "src/other.py", "x = 1\ny = 2\nz = 4\n")
    commit(agent.repo, "Tidy\n\nCo-Authored-By: Claude <noreply@anthropic.com>", at=later)
    assert note_tunings(workspace, extractor(isolated_home, dry_run=True)) == 1
    assert nuggets(isolated_home, NuggetType.TUNING) == []
    assert note_tunings(workspace, extractor(isolated_home)) == 1
    assert note_tunings(workspace, extractor(isolated_home)) == 0
    tuning = nuggets(isolated_home, NuggetType.TUNING)[0]
    assert said([tuning]) == [("Human-edited AI output in src/token.py: TTL = 600 → TTL = 900", "src/token.py", 0.65)]
    assert "- TTL = 600\n+ TTL = 900" in tuning.detail
    git(agent.repo, "checkout", "-q", "HEAD~2")  # Another state is checked out; what was seen stays.
    note_tunings(workspace, extractor(isolated_home, force=True))
    assert [one.summary for one in nuggets(isolated_home, NuggetType.TUNING)] == [tuning.summary]


@pytest.mark.proves("PROVENANCE-ONCE", "PROVENANCE-STORE")
def test_a_session_is_extracted_once_and_again_when_it_has_grown_with_the_same_ids(agent, isolated_home):
    agent.prompt("Repair the login of the shop")
    agent.edit("src/auth.py", "None", "1")
    assert [one.state for one in extracted(isolated_home)] == ["extracted"]
    (again,) = extracted(isolated_home)
    assert (again.state, again.reason) == ("skipped", "nothing new since it was extracted")
    before = {one.summary: one.id for one in nuggets(isolated_home)}
    seen = isolated_home / ".nugget" / "provenance" / "seen.json"
    whole = seen.read_text()
    for entry in (whole.replace(", 5, [", ", 4, ["), json.dumps({key: [] for key in json.loads(whole)}), "broken"):
        seen.write_text(entry)  # by an earlier version, or damaged
        assert [one.state for one in extracted(isolated_home)] == ["extracted"]
    agent.prompt("Also write the changelog")
    agent.write("CHANGELOG.md", "- login\n")
    assert [one.state for one in extracted(isolated_home)] == ["extracted"]
    after = {one.summary: one.id for one in nuggets(isolated_home)}
    assert before.items() <= after.items()
    assert [one.state for one in extracted(isolated_home, force=True)] == ["extracted"]
    assert {one.summary: one.id for one in nuggets(isolated_home)} == after


@pytest.mark.proves("PROVENANCE-REDACTED")
def test_secrets_private_text_and_excluded_projects_leave_no_trace(agent, isolated_home):
    agent.prompt(
        f"Never print {SECRET} anywhere. <private>My name. Never tell it.\nAlways hide it.</private> Fix login."
    )
    agent.edit("src/auth.py", "None", "1")
    agent.write("keys.pem", "k\n")
    limits = Settings(capture_exclude_paths=("*.pem",))
    extracted(isolated_home, settings=limits)
    kept = "".join(file.read_text("utf-8") for file in session_files(isolated_home / ".nugget"))
    assert kept
    assert not [word for word in (SECRET, "My name", "Always hide", "keys.pem") if word in kept]
    shutil.rmtree(isolated_home / ".nugget")
    limits = Settings(capture_exclude_projects=(str(agent.repo.parent / "*"),))
    outcomes = extracted(isolated_home, settings=limits)
    assert [(one.state, "excluded" in one.reason) for one in outcomes] == [("skipped", True)]
    assert records(isolated_home) == []


@pytest.mark.proves("PROVENANCE-EXTRACT", "PROVENANCE-WORKSPACE")
def test_the_command_takes_the_sessions_of_the_workspace_from_any_worktree(agent, nugget, tmp_path, monkeypatch):
    agent.prompt("Repair the login of the shop")
    agent.edit("src/auth.py", "None", "1")
    foreign = Agent(repo=make_repository(tmp_path / "blog"), claude_config=agent.claude_config)
    foreign.prompt("Write about the login of the shop")
    broken = agent.transcript.with_name("b0000000-0000-4000-8000-000000000000.jsonl")
    broken.write_text("this is no transcript\n")
    git(agent.repo, "worktree", "add", "-q", str(tmp_path / "tree"))
    monkeypatch.chdir(tmp_path / "tree")
    done = nugget("extract", "--with", "offline", "--json")
    told = done.json
    assert done.code == 1 and (told["extracted"], told["skipped"], told["failed"]) == (1, 0, 1)
    assert told["workspace"].startswith("github.com-acme-shop-")
    states = {one["session"]: one["state"] for one in told["sessions"]}
    assert states == {agent.session: "extracted", broken.stem: "failed"}
    broken.unlink()
    done = nugget("extract", "--all")
    assert done.code == 0 and "Extraction Results:\n  Extracted: 1\n  Skipped:   1\n  Failed:    0" in done.out


@pytest.mark.proves("PROVENANCE-AUTOMATIC")
def test_a_captured_session_leaves_its_provenance_unless_that_is_switched_off(agent, isolated_home, brain, monkeypatch):
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    agent.prompt("Repair the login of the shop")
    agent.edit("src/auth.py", "None", "1")
    capture = ["capture-session", "--transcript", str(agent.transcript), "--brain", str(brain)]
    monkeypatch.setenv("NUGGET_PROVENANCE", "false")
    assert run(capture) == 0
    assert records(isolated_home) == []
    monkeypatch.delenv("NUGGET_PROVENANCE")
    assert records(isolated_home) == []
    assert run(capture) == 0
    assert [touch.path for record in records(isolated_home) for touch in record.touches] == ["src/auth.py"]
    shutil.rmtree(isolated_home / ".nugget" / "provenance")
    (isolated_home / ".nugget" / "provenance").write_text("in the way")
    agent.prompt("And now the logout")
    assert run(capture) == 0  # What becomes of provenance never touches the capture.


@pytest.mark.proves("PROVENANCE-REAL")
def test_every_real_transcript_is_extracted_and_every_summary_fits(shared_data, isolated_home):
    folder = isolated_home / ".claude" / "projects" / "all"
    folder.mkdir(parents=True)
    for number, file in enumerate(sorted((shared_data / "transcripts").rglob("*.jsonl"))):
        if "other-agents" not in file.parts and not file.name.startswith("agent-"):
            shutil.copy(file, folder / f"{number}-{file.name}")
    outcomes = extracted(isolated_home)
    assert all("is not a transcript" in one.reason for one in outcomes if one.state == "failed")
    assert sum(one.state == "extracted" for one in outcomes) > 40
    found = nuggets(isolated_home)
    assert len(found) > 60
    assert all(0 < len(one.summary) <= 120 and "\n" not in one.summary for one in found)
    assert {one.type for one in found if one.summary.startswith("Fixed: ")} == {NuggetType.DECISION}
    common = {NuggetType.INTENT, NuggetType.DECISION, NuggetType.CAVEAT, NuggetType.DEPENDENCY}
    assert {one.type for one in found} >= common


MADE = datetime(2026, 3, 1, tzinfo=UTC)
SHOP = "github.com-acme-shop-1a2b3c4d"


def nugget(summary: str, session: str, **values: object) -> Nugget:
    given = {"id": "", "type": NuggetType.DECISION, "summary": summary, "confidence": 0.8, "session": session}
    return Nugget(**(given | values))  # type: ignore[arg-type]


def record(session: str = "aaaaaaaa-1111", *summaries: str) -> SessionRecord:
    scope = Scope(repo=SHOP, path="src/auth.py", symbol="login")
    return SessionRecord(
        session=session, workspace=SHOP, title="Login", started=MADE, ended=MADE, records=7,
        transcript="/home/me/.claude/t.jsonl",
        nuggets=tuple(
            nugget(one, session, scope=scope, evidence=(Evidence(session=session, quote="said"),)) for one in summaries
        ),
        touches=(FileTouch(path="src/auth.py", action=TouchAction.MODIFIED, after_hash="a" * 64),),
    )  # fmt: skip


def stored(home: Path) -> list[SessionRecord]:
    return [read_session_file(file)[0] for file in session_files(home)]


@pytest.mark.proves("PROVENANCE-TRAVEL")
def test_hostile_lines_are_reported_and_nothing_of_them_lands_anywhere_else(tmp_path):
    lines = [
        {"kind": "nugget", "id": "x-1", "type": "caveat", "summary": "homeless", "confidence": 1, "session": "s"},
        {"kind": "session", "session": "../../../escape", "workspace": "../../etc", "records": 10**9},
        {"kind": "nugget", "id": "x-1", "type": "caveat", "summary": f"key {SECRET}", "confidence": 1, "session": "z"},
        {"kind": "nugget", "id": "x-1", "type": "caveat", "summary": "same id", "confidence": 1, "session": "z"},
        {"kind": "touch", "path": "../up", "action": "created"},
    ]
    text = "\n".join(["{torn", *map(json.dumps, lines), "[]", "\0"]).encode()
    done = import_lines(tmp_path / "home", io.BytesIO(text), name="in.jsonl", settings=Settings(), dry_run=False)
    assert (done["sessions"], done["new"], len(done["problems"])) == (1, 2, 5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]
    [kept] = stored(tmp_path / "home")
    assert kept.records == 0 and {one.session for one in kept.nuggets} == {"../../../escape"}
    assert len({one.id for one in kept.nuggets}) == 2
    assert SECRET not in next(session_files(tmp_path / "home")).read_text("utf-8")


@pytest.mark.proves("PROVENANCE-TRAVEL")
def test_the_commands_write_a_file_and_read_it_back(isolated_home, tmp_path, monkeypatch, capsys):
    write_session(isolated_home / ".nugget", record("aaaaaaaa-1111", "chose JWT"))
    monkeypatch.chdir(tmp_path)
    assert run(["nuggets", "export", "out.jsonl", "--all"]) == 0
    assert run(["nuggets", "export", "--all"]) == 0
    assert capsys.readouterr().out == (tmp_path / "out.jsonl").read_text("utf-8")
    monkeypatch.setenv("NUGGET_HOME", str(tmp_path / "other"))
    assert run(["nuggets", "import", "out.jsonl"]) == 0
    assert capsys.readouterr().out == "1 session: 1 nugget new, 0 known already.\n"
    assert run(["nuggets", "import", "none.jsonl"]) == 2
    (tmp_path / "bad.jsonl").write_text("no\n")
    assert run(["nuggets", "import", "bad.jsonl"]) == 1
