"""Notes, exports, vaults and conversations that people have become proposals and sessions."""

import gzip
import json
import os
import zipfile
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from commands import Nugget
from knowledge_files import accept
from knowledge_files import write as write_file
from paths import TESTS
from sessions import nothing_similar

from nugget.brain import knowledge_file as knowledge
from nugget.capture import review
from nugget.capture.compare import ProposalTarget
from nugget.config import Settings
from nugget.extraction.proposals import Proposal
from nugget.importing import ImportResult, import_notes
from nugget.importing.notes import notes_of_page
from nugget.infra import git
from nugget.models import Origin, Problem

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
NYGARD, RULES, VAULT, MADR, CURSOR = (
    (TESTS / "fixtures/importing" / name).read_text("utf-8")
    for name in ("nygard.md", "rules.md", "vault.md", "madr.md", "cursor.mdc")
)


def bring_in(path: Path, brain: Path, home: Path, **changes: object) -> ImportResult:
    bound = {"settings": Settings(), "similar": nothing_similar, "now": NOW} | changes
    return import_notes(path, ProposalTarget(brain=brain.resolve(), home=home, **bound))  # type: ignore[arg-type]


TOKEN = "ghp_" + "a1B2c3D4e5F6" * 3


def write(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        write_file(root, path, text)
    return root


@pytest.mark.proves("IMPORT-REVIEW", "IMPORT-EVIDENCE", "IMPORT-UNTOUCHED")
def test_a_folder_becomes_a_branch_that_is_reviewed_and_accepted(brain, home, tmp_path):
    folder = write(tmp_path / "shop", {"doc/adr/0002-x.md": NYGARD, "CLAUDE.md": RULES, "Coding/Go/leak.md": VAULT})
    before = {file: file.read_bytes() for file in folder.rglob("*.md")}
    head = git.head(brain)
    result = bring_in(folder, brain, home)
    assert result.branch == "nugget/import-20260304-050607-shop" and result.files == 3
    assert git.head(brain) == head and git.run(brain, "status", "--porcelain") == b""
    assert {file: file.read_bytes() for file in folder.rglob("*.md")} == before
    proposal = review.show(brain)
    assert proposal.title == "Knowledge from shop" and proposal.trailers["Nugget-Import"] == "shop"
    assert "> from `shop/doc/adr/0002-x.md:1`" in proposal.body
    files = {file.path: file.unit for file in proposal.files}
    leak = files["domains/coding/go/bugs/leak.md"]
    assert leak is not None and leak.origin is Origin.IMPORTED and leak.session is None
    (evidence,) = leak.evidence
    assert evidence.session == "shop/Coding/Go/leak.md:6" and evidence.quote.startswith("A goroutine that waits")
    assert len(accept(brain, now=NOW).files) == 4 and (brain / "domains/coding/go/bugs/leak.md").exists()
    for path in files:
        parsed = knowledge.parse((brain / path).read_text(), path=path)
        assert parsed.unit is not None and parsed.problems == ()


@pytest.mark.proves("IMPORT-ONCE")
def test_the_same_notes_are_proposed_once_whatever_became_of_them(brain, home, tmp_path):
    folder = write(tmp_path / "shop", {"doc/adr/0002-x.md": NYGARD, "CLAUDE.md": RULES, "leak.md": VAULT})
    first = bring_in(folder, brain, home)
    again = bring_in(folder, brain, home)
    assert (again.branch, again.changes, again.known) == (None, (), 4), "they wait for review"
    review.decide(brain, None, review.Decision(reject=["decision/implement-as-shell-scripts"]), home=home, now=NOW)
    accept(brain, first.branch, now=NOW)
    (folder / "leak.md").rename(folder / "renamed.md")
    moved = bring_in(folder.rename(tmp_path / "elsewhere"), brain, home)
    assert moved.changes == () and moved.known == 3
    assert [reason for reason in moved.dropped if "turned down before" in reason]


@pytest.mark.proves("IMPORT-NEAR", "IMPORT-UNTOUCHED")
def test_what_is_near_to_the_brain_is_flagged_and_edits_nothing(brain, home, tmp_path):
    path = "domains/coding/concepts/idempotency-keys.md"
    known = knowledge.parse((brain / path).read_text(), path=path).unit
    assert known is not None
    more = f"{known.body}\n\nStripe keeps a key for a day; afterwards the same key starts a new payment unseen."
    folder = write(tmp_path / "notes", {"same.md": known.body})
    said = bring_in(folder, brain, home, similar=lambda unit: [(known, 0.99)])
    assert said.changes == () and "concept/idempotency-keys says it already" in said.dropped[0]
    write(folder, {"more.md": more})
    (change,) = bring_in(folder, brain, home, similar=lambda unit: [(known, 0.93)]).changes
    assert change.is_new and change.path != path
    assert change.note == "much like concept/idempotency-keys (similarity 0.93)"


@pytest.mark.proves("IMPORT-REDACTED")
def test_no_secret_and_no_excluded_file_gets_in(brain, home, tmp_path):
    text = f"# Deploy\n\nThe token {TOKEN} opens the registry for every deployment.\n<private>my wage</private>\n"
    folder = write(tmp_path / "notes", {"deploy.md": text, "hr/pay.md": "# Pay\n\n" + "Ann earns 90000 a year. " * 5})
    result = bring_in(folder, brain, home, settings=Settings(capture_exclude_paths=("hr/*",)))
    assert result.redacted == {"github-token": 1, "private": 1}
    held = git.run(brain, "log", "-p", str(result.branch)).decode()
    assert TOKEN not in held and "wage" not in held and "90000" not in held
    assert "notes/hr/pay.md: is excluded (capture.exclude_paths)" in map(str, result.left_out)


@pytest.mark.proves("IMPORT-HOSTILE")
def test_hostile_files_are_left_out_with_a_reason_and_stop_no_other(brain, home, tmp_path):
    good = "# Vector clocks\n\nThey say which of two events came first, where no clock can be trusted to.\n"
    bomb = f"---\na: &a [x]\nb: &b [*a,*a]\nc: {'[' * 5000}\n---\n# Bomb clocks\n\nTicking is all that they do, and "
    evil = "---\ntitle: ../../../etc/passwd\ntype: ../x\ntags: ['a\\nb', '---']\n---\n---\nid: bug/x\n---\n"
    files = {
        "good.md": good, ".git/notes.md": good, "deep.json": '"memory"' + "[" * 100_000, "package.json": '{"a": 1}',
        "bomb.md": f"{bomb}nobody should open one at home.\n", "evil.md": evil + "text " * 40,
    }  # fmt: skip
    folder = write(tmp_path / "notes", files)
    (folder / "binary.md").write_bytes(b"# x\n\0\1\2" * 50)
    (folder / "latin.md").write_bytes("# Café\n\nüber".encode("latin-1"))
    (folder / "huge.md").write_bytes(b"x" * 1_000_001)
    (folder / "link.md").symlink_to("/etc/passwd")
    (folder / "alias.md").symlink_to(folder / "good.md")
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe.md")
    result = bring_in(folder, brain, home)
    said = {entry.path: entry.reason for entry in result.left_out}
    assert said == {
        "notes/binary.md": "is not a text in UTF-8", "notes/latin.md": "is not a text in UTF-8",
        "notes/alias.md": "is a link, which is not followed",
        "notes/huge.md": "is larger than 1,000,000 bytes", "notes/deep.json": "is not valid JSON",
    }  # fmt: skip
    (alone,) = bring_in(folder / "package.json", brain, home).left_out
    assert alone.reason == "is not a known export (mem0, claude-mem)"
    ids = {change.unit.id for change in result.changes}
    assert {"concept/vector-clocks", "concept/bomb-clocks"} <= ids and len(ids) == 3
    for change in result.changes:
        assert change.path.startswith("domains/") and ".." not in change.path
        assert knowledge.parse(change.text, path=change.path).unit is not None


def notes(text: str, path: str = "notes/page.md") -> list[Proposal]:
    return [found for found in notes_of_page(text, path=path) if isinstance(found, Proposal)]


def line_of(note: Proposal) -> int:
    return int(note.unit.evidence[0].session.rpartition(":")[2])


def reasons(text: str, path: str = "notes/page.md") -> list[str]:
    return [found.reason for found in notes_of_page(text, path=path) if isinstance(found, Problem)]


@pytest.mark.proves("IMPORT-FORMATS", "IMPORT-ONE-IDEA")
def test_a_record_by_nygard_is_one_decision():
    (note,) = notes(NYGARD, "shop/doc/adr/0002-implement-as-shell-scripts.md")
    assert (note.unit.type, note.unit.title, line_of(note)) == ("decision", "Implement as shell scripts", 1)
    assert note.unit.body.startswith("# Implement as shell scripts\n") and "won't support Windows" in note.unit.body
    assert note.unit.evidence[0].quote == "The tool is implemented as shell scripts that use standard Unix tools."
    assert note.reason == "an architecture decision record (Nygard)" and note.unit.confidence == 0.8
    assert note.unit.created == date(2016, 2, 12) and note.note is None


@pytest.mark.proves("IMPORT-FORMATS")
def test_a_record_by_madr_keeps_its_alternatives_and_its_status():
    (note,) = notes(MADR, "shop/docs/decisions/0005-use-dashes.md")
    assert (note.unit.type, note.unit.title) == ("decision", "Use dashes in filenames")
    assert note.unit.alternatives == ("YYYY-MM-DD Title",)
    assert note.reason == "an architecture decision record (MADR), superseded"
    assert note.unit.confidence == 0.3 and "superseded" in note.unit.tags and "worth keeping" in str(note.note)
    assert note.unit.created == date(2024, 5, 1) and line_of(note) == 6


@pytest.mark.proves("IMPORT-FORMATS", "IMPORT-ONE-IDEA")
def test_rules_become_units_by_their_sections():
    found = notes(RULES, "shop/CLAUDE.md")
    titles = [(note.unit.title, line_of(note)) for note in found]
    assert titles == [("Rules of shop: Testing", 5), ("Rules of shop: Database", 9)]
    assert "### Migrations" in found[1].unit.body and "@docs" not in found[1].unit.body
    assert {note.unit.type for note in found} == {"pattern"}
    assert reasons(RULES, "shop/CLAUDE.md") == ["only says what the file is for"]


@pytest.mark.proves("IMPORT-FORMATS")
def test_cursor_rules_are_read_although_their_frontmatter_is_no_yaml():
    (note,) = notes(CURSOR, "shop/.cursor/rules/fastapi.mdc")
    assert note.unit.title == "FastAPI Best Practices: Models" and line_of(note) == 9
    assert note.unit.body.endswith("Applies to files that match `**/*.py, app/**/*.py`.")
    assert reasons(CURSOR, "shop/.cursor/rules/fastapi.mdc") == ["says too little to stand alone"]


@pytest.mark.proves("IMPORT-FORMATS")
def test_a_note_of_obsidian_keeps_tags_and_words_and_loses_dead_links():
    (note,) = notes(VAULT, "vault/Coding/Go/Context leaks.md")
    assert (note.unit.type, note.unit.title, note.reason) == ("bug", "Context leaks", "a note: tagged #bug")
    assert note.unit.tags == ("go", "bug", "concurrency") and note.unit.created == date(2025, 4, 3)
    assert "looking at the context never" in note.unit.body and "(diagram.png)" in note.unit.body
    assert "[[" not in note.unit.body


@pytest.mark.proves("IMPORT-LEFT-OUT")
@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        ("v/2026-03-01.md", "Went running and read a long book about databases and their history.", "journal"),
        ("v/todo.md", "- [ ] one thing that has to be done soon\n- [x] and another that is done already\n", "tasks"),
        ("v/moc.md", "# Map\n\n- [[A note]]\n- [text of it](b.md)\n- https://example.org/page\n" * 4, ""),
        ("v/a.md", "# Title\n\nshort", "too little"),
        ("v/adr-template.md", NYGARD, "template"),
        ("v/new.md", "# {short title of the problem}\n\n## Decision\n\nx\n\n## Status\n\ny", "template"),
    ],
)
def test_what_is_no_knowledge_by_its_form_is_left_out(path, text, reason):
    (said,) = reasons(text, path)
    assert reason in said and notes(text, path) == []


EXPORTS = TESTS / "exports"
"""Written by the programs themselves: claude-mem 13.25.3, mem0ai 2.2.1, basic-memory 0.24.1."""


LEARNED = {
    ("bug", "Captures were doubled by a retry without an idempotency key", "payments-api"),
    ("decision", "Keys are made of order id and attempt day", "payments-api"),
    ("concept", "Settlement runs as a nightly batch", "payments-api"),
    ("bug", "Webhook signatures are not compared in constant time", "payments-api"),
    ("concept", "Staging gateway hours", "payments-api"),
}


@pytest.mark.proves("IMPORT-REAL")
@pytest.mark.parametrize("form", ["export.json", "observations.json", "claude-mem.db", "folder"])
def test_what_claude_mem_itself_wrote_is_read_in_each_of_its_forms(brain, home, tmp_path, form):
    file = tmp_path / "home" / ".claude-mem" / form.replace("folder", "claude-mem.db")
    file.parent.mkdir(parents=True)
    if form in ("export.json", "observations.json"):
        file.write_bytes((EXPORTS / "claude-mem" / form).read_bytes())
    else:
        file.write_bytes(gzip.decompress((EXPORTS / "claude-mem" / "claude-mem.db.gz").read_bytes()))
        file = file.parent if form == "folder" else file
    before = {path: path.stat().st_mtime_ns for path in file.parent.rglob("*")}
    result = bring_in(file, brain, home)
    found = {(change.unit.type, change.unit.title, change.unit.domain) for change in result.changes}
    assert found == LEARNED and result.files == 1
    assert sorted(entry.reason for entry in result.left_out) == ["is marked as sensitive",
                                                                 "only says what was done (feature)"]  # fmt: skip
    bug = next(change.unit for change in result.changes if "doubled" in change.unit.title)
    assert "- The gateway keeps keys for 24 hours" in bug.body and bug.created == date(2026, 5, 2)
    assert {path: path.stat().st_mtime_ns for path in file.parent.rglob("*")} == before, "no file of SQLite's is left"


@pytest.mark.proves("IMPORT-REAL")
@pytest.mark.parametrize(
    ("form", "beginnings"),
    [*((form, ["Migrations", "Team", "The"]) for form in ("get_all.json", "history.db")),
     *((form, ["The"]) for form in ("history.json", "search.json"))],
)  # fmt: skip
def test_what_mem0_itself_wrote_is_read_in_each_of_its_forms(brain, home, form, beginnings):
    result = bring_in(EXPORTS / "mem0" / form, brain, home)
    said = sorted(change.unit.body.removeprefix("#").strip() for change in result.changes)
    assert [text.split()[0] for text in said] == beginnings
    assert "at most five times" in said[-1] and "at most three" not in "".join(said), "what an update replaced is gone"
    assert {entry.reason for entry in result.left_out} <= {"says too little to stand alone"}


@pytest.mark.proves("IMPORT-REAL")
def test_what_basic_memory_itself_wrote_is_read_with_its_types_and_relations(brain, home):
    result = bring_in(EXPORTS / "basic-memory", brain, home)
    found = {change.unit.title: change.unit for change in result.changes}
    assert {title: (unit.type, unit.domain) for title, unit in found.items()} == {
        "Webhook signatures": ("bug", "general"), "Settlement": ("concept", "general"),
        "Payment retries": ("decision", "payments"),
    }  # fmt: skip
    assert "- implements Payment API" in found["Payment retries"].body
    assert found["Webhook signatures"].tags == ("webhooks", "security")
    assert [entry.path for entry in result.left_out] == ["basic-memory/journal/Morning notes.md"]


SECRET = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
LONG = "so that nobody has to guess what happens when the queue is full and the worker is away for the night."
CHATGPT, CLAUDE = json.loads((TESTS / "fixtures/importing/conversations.json").read_text("utf-8"))


@pytest.mark.proves("IMPORT-GRAPH")
def test_links_aliases_and_embeds_become_relations(nugget, words, tmp_path):
    vault = tmp_path / "vault"
    notes = {
        "ops/Queue limits.md": "---\naliases: [Backpressure]\nstatus: evergreen\ntags: [queues]\n---\n# Queue limits\n"
                               f"Cap each queue, see [[Retry policy|how we retry]], {LONG} ![[limits.png]]\n",
        "Retry policy.md": f"# Retry policy\n\nRetry twice under [[backpressure#Limits]] and ![[Timeouts]], {LONG}\n",
        "Timeouts.md": "# Timeouts\n\nAs [we retry](./Retry%20policy.md) or [limit](ops/Queue limits.md), "
                       f"{LONG} [[Nowhere]]\n",
        "Daily/2026-03-01.md": f"# Today\n\nNothing much, {LONG}\n",
    }  # fmt: skip
    done = nugget("import", write(vault, notes))
    assert done.code == 0 and "1 daily note" in done.err and "canon.folders" in done.err
    assert nugget("review", "accept").code == 0
    slugs = ("queue-limits", "retry-policy", "timeouts")
    units = dict(zip(slugs, map(shown(nugget), slugs), strict=True))
    related = {name: {one["id"].partition("/")[2] for one in unit["related"]} for name, unit in units.items()}
    assert related == {
        "queue-limits": {"retry-policy"}, "retry-policy": {"queue-limits", "timeouts"},
        "timeouts": {"queue-limits", "retry-policy"},
    }  # fmt: skip
    assert "(limits.png)" in units["queue-limits"]["body"] and "how we retry" in units["queue-limits"]["body"]


def shown(nugget: Nugget):  # type: ignore[no-untyped-def]
    def get(slug: str) -> dict[str, object]:
        (ref,) = [one for one in nugget("search", slug.replace("-", " "), "-q").out.split() if one.endswith(f"/{slug}")]
        return nugget("get", ref, "--json").json  # type: ignore[no-any-return]

    return get


@pytest.mark.proves("IMPORT-CHATS")
@pytest.mark.parametrize("form", ["file", "folder", "zip"])
def test_conversations_are_sessions_that_are_found_shown_and_captured(nugget, words, tmp_path, form):
    text = json.dumps([CHATGPT, CLAUDE, {"mapping": 3}, "noise", {"uuid": "x", "chat_messages": [None]}])
    folder = write(tmp_path / "export", {"conversations.json": text})
    place = folder if form == "folder" else folder / "conversations.json"
    if form == "zip":
        place = tmp_path / "export.zip"
        with zipfile.ZipFile(place, "w") as archive:
            archive.writestr("conversations.json", text)
    found = nugget("import", place, "--json").json["sessions"]
    assert [one["title"] for one in found] == ["Queue sizes", "Names of queues"]
    listed = {one["title"]: one for one in nugget("sessions", "--all", "--json").json["sessions"]}
    assert {one["agent"] for one in listed.values()} == {"chatgpt", "claude.ai"}
    whole = nugget("sessions", "show", CHATGPT["conversation_id"]).out
    assert "tanager queue is full" in whole and "ghp_" not in whole and "regretted" not in whole
    assert nugget("search", "bittern", "--source", "sessions", "-q").out.startswith("session:c0ffee00")
    assert nugget("capture-session", "--session", CLAUDE["uuid"], "--dry-run").code == 0


@pytest.mark.proves("IMPORT-CHATS")
@pytest.mark.parametrize("text", ["", "[", "{}", "[1, 2]", "[[[" * 9000])
def test_what_is_no_export_is_refused_in_a_sentence(nugget, words, tmp_path, text):
    file = tmp_path / "conversations.json"
    file.write_text(text, "utf-8")
    done = nugget("import", file)
    assert done.code == 2 and done.err.startswith("Error: ") and "Traceback" not in done.err
