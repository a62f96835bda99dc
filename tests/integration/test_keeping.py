"""What a person reviews by keys, takes back, pauses, erases and backs up: on real brains and archives."""

import gzip
import io
import json
import os
import shutil
import subprocess
import tarfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from programs import program
from sessions import write_transcript
from terminals import terminal

from nugget.infra import files, git

MARK = "zanzibarite"


@pytest.mark.proves("UNDO")
def test_changes_are_listed_and_taken_back_from_the_last_one_on(nugget, words, monkeypatch):
    for text in ("Quokkas smile because of their jaws.", "Wombats dig with flat backs."):
        assert nugget("add", text, "--domain", "zoology").code == 0
    before = git.files_at(words, "HEAD")
    unit = "pattern/" + min(Path(words, "domains/zoology/patterns").glob("*.md")).stem
    assert nugget("mv", unit, "--domain", "animals").code == 0
    (words / "untracked.md").write_text("mine")
    assert nugget("undo").out.startswith(f"Undone: Move {unit}")
    assert git.files_at(words, "HEAD") == before and (words / "untracked.md").read_text() == "mine"
    assert nugget("undo", "--json").json["kind"] == "added"
    assert nugget("undo").code == 0 and not list(Path(words, "domains").glob("zoology/patterns/*.md"))
    assert nugget("search", "wombats", "-q").out == ""
    listed = nugget("log", "--json").json["changes"]
    assert [one["kind"] for one in listed] == ["undone"] * 3 + ["moved", "added", "added"]
    monkeypatch.setenv("TZ", "UTC-9")
    time.tzset()
    assert f"{datetime.fromisoformat(listed[0]['time']) + timedelta(hours=9):%Y-%m-%d %H:%M}" in nugget("log").out


@pytest.mark.proves("UNDO")
def test_undo_keeps_what_changed_since_and_refuses_where_it_cannot(nugget, words):
    assert nugget("add", "Quokkas smile because of their jaws.", "--domain", "zoology").code == 0
    (file,) = Path(words, "domains/zoology/patterns").glob("*.md")
    file.write_text(file.read_text() + "\nMore by hand.\n")
    assert (dirty := nugget("undo")).code == 1 and "uncommitted" in dirty.err
    git.run(words, "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qam", "By hand")
    head = git.head(words)
    refused = nugget("undo")
    assert refused.code == 1 and "was changed since" in refused.err and git.head(words) == head
    assert "More by hand." in file.read_text()


@pytest.mark.proves("UNDO")
def test_what_was_accepted_waits_for_review_again(nugget, words, tmp_path):
    for name in ("keys", "locks"):
        text = f"# Use {name}\n\nAlways use {name} for payments, because customers pay twice without them.\n"
        (tmp_path / f"{name}.md").write_text(text)
    assert nugget("import", str(tmp_path)).code == 0
    both = {file["id"] for file in nugget("review", "show", "--json").json["files"]}
    for units in (["--unit", min(both)], []):
        assert nugget("review", "accept", *units).code == 0 and nugget("undo").out.endswith("waits for review again.\n")
        assert {file["id"] for file in nugget("review", "show", "--json").json["files"]} == both
    assert nugget("review", "accept").code == 0 and nugget("get", min(both)).code == 0


def conversation(home: Path, name: str) -> Path:
    file = home / ".claude" / "projects" / "-srv-shop" / f"{name}.jsonl"
    write_transcript(file, [(f"Remember: never cache the {MARK}, it goes stale.", f"I will not cache the {MARK}.")],
                     session=name)  # fmt: skip
    os.utime(file, (time.time() - 3600,) * 2)
    return file


@pytest.mark.proves("PAUSE")
def test_nothing_is_captured_while_paused_not_later_either(nugget, words, isolated_home):
    one = conversation(isolated_home, "11111111-0000-4000-8000-000000000001")
    assert nugget("pause", "--session", one.stem).code == 0
    assert nugget("capture", "--catch-up", "--json").json["found"] == 0
    assert nugget("pause", "--session", one.stem, "--end").code == 0 and nugget("pause").code == 0
    assert "paused: no session is captured. Next: nugget pause --end" in nugget("status").out
    os.utime(one, (time.time() + 1,) * 2)
    assert nugget("pause", "--end").code == 0
    os.utime(one, (time.time() - 3600,) * 2)
    assert nugget("capture", "--catch-up", "--json").json["found"] == 1


@pytest.mark.proves("ERASE")
def test_an_erased_session_is_in_no_file_of_ours_and_is_not_read_again(nugget, words, isolated_home):
    file, home = conversation(isolated_home, "22222222-0000-4000-8000-000000000002"), isolated_home / ".nugget"
    for line in ("capture --catch-up", "sync", "extract --all"):
        assert nugget(*line.split()).code == 0
    assert nugget("search", "stale", "--source", "sessions", "-q").out and nugget("erase", "--session", "22").code == 2

    def holding() -> list[str]:
        read = {one: one.read_bytes() for one in home.rglob("*") if one.is_file()}
        plain = {one: gzip.decompress(text) if one.suffix == ".gz" else text for one, text in read.items()}
        return [str(one) for one, text in plain.items() if MARK.encode() in text]

    assert {Path(one).parent.name for one in holding()} >= {"archive", ".nugget"}
    erased = nugget("erase", "--session", file.stem[:8], "--json").json
    assert erased["session"] == file.stem and "index.db" in erased["removed"] and not holding()
    nugget("sync")
    files.queue_job(home, {"session": file.stem, "transcript": str(file)})
    assert nugget("capture", "--catch-up", "--json").json["found"] == 0 and holding() == []
    assert nugget("sessions", "--all", "--json").json["sessions"] == [] and file.exists()


@pytest.mark.proves("BACKUP")
def test_a_backup_brings_back_what_cannot_be_derived(nugget, words, isolated_home, monkeypatch):
    monkeypatch.chdir(isolated_home)
    file = conversation(isolated_home, "33333333-0000-4000-8000-000000000003")
    assert nugget("capture", "--catch-up").code == 0 and nugget("sync").code == 0
    home, archive = isolated_home / ".nugget", Path("kept.tar.gz")
    assert nugget("backup", archive).code == 0 and archive.stat().st_mode & 0o077 == 0
    assert nugget("backup", archive).code == 2 and nugget("restore", archive).code == 1
    assert nugget("backup", home / "no" / "such.tar.gz").code == 2 and not (home / "no").exists()
    listed = nugget("sessions", "--all", "--json").json
    home.rename(isolated_home / "before")
    with files.locked(home / "queue/worker.lock"):
        assert nugget("restore", archive).code == 0
    for name in ("ledger/captures.jsonl", f"archive/{file.stem}.jsonl.gz"):
        assert (home / name).read_bytes() == (isolated_home / "before" / name).read_bytes()
    assert not (home / "index.db").exists() and (home / "ledger").stat().st_mode & 0o077 == 0
    assert nugget("sessions", "--all", "--json").json == listed and "0 found" in nugget("capture", "--catch-up").out
    for one in (file, home / "index.db"):
        one.unlink(missing_ok=True)  # Claude Code removes transcripts after 30 days
    assert "last prompt: " in nugget("logs", "context", "where were we", "--session", file.stem).out


@pytest.mark.proves("BACKUP")
@pytest.mark.parametrize("kind", ["parent", "absolute", "link", "hardlink", "device", "cut off", "no archive"])
def test_a_hostile_archive_restores_nothing(nugget, tmp_path, isolated_home, kind):
    archive, stolen = tmp_path / "bad.tar.gz", tmp_path / "stolen"
    with tarfile.open(archive, "w:gz") as made:
        made.addfile(tarfile.TarInfo("config.yaml"), io.BytesIO(b""))
        bad = tarfile.TarInfo({"parent": "../stolen", "absolute": str(stolen)}.get(kind, "ledger"))
        types = {"link": tarfile.SYMTYPE, "hardlink": tarfile.LNKTYPE, "device": tarfile.CHRTYPE}
        bad.type, bad.linkname = types.get(kind, tarfile.REGTYPE), str(stolen)
        made.addfile(bad, io.BytesIO(b""))
    if kind == "cut off":
        archive.write_bytes(archive.read_bytes()[:-20])
    if kind == "no archive":
        archive.write_text("not gzip")
    done = nugget("restore", archive)
    assert done.code in (1, 2) and "Traceback" not in done.err and "nothing was" in done.err
    assert not stolen.exists() and not list((isolated_home / ".nugget").glob("*"))


NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
BRANCH = "nugget/session-20260304-050607-abcd1234"


@pytest.fixture
def proposed(words: Path) -> Path:
    """A brain in which five units wait: two patterns and a bug of one domain, two concepts of another."""
    files: dict[str, bytes | None] = {}
    for place in ("coding/patterns/okapi", "coding/patterns/zebra", "coding/bugs/yak", "ops/concepts/gnu",
                  "ops/concepts/ibex"):  # fmt: skip
        domain, kind, slug = place.split("/")
        head = f"---\nid: {kind[:-1]}/{slug}\ntype: {kind[:-1]}\ndomain: {domain}\n---\n"
        files[f"domains/{place}.md"] = f"{head}# The {slug} way\n\nBy {slug}.\n".encode()
    git.create_branch(words, BRANCH, files=files, message="Knowledge from a session\n\nFive.", now=NOW)
    return words


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
@pytest.mark.proves("REVIEW-KEYS")
def test_units_are_decided_by_keys_in_one_commit(proposed, isolated_home, nugget, tmp_path):
    once, before = tmp_path / "once", git.head(proposed)
    mend = "sed -i -e '1i ---' -e 's/By yak./By yak, token ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8/' \"$1\""
    editor = program(tmp_path / "editor", f'[ -e {once} ] && {mend} || {{ touch {once}; sed -i 1d "$1"; }}')
    with terminal("bash", isolated_home, {"EDITOR": str(editor)}) as shell:
        shell.type("nugget review -i\n")
        shell.answer(b"1 of 5", "e")  # bug/yak
        shell.answer(b"has no frontmatter", "e")
        shell.answer(b"2 of 5", "r")  # pattern/okapi
        shell.answer(b"3 of 5", "s")  # pattern/zebra
        shell.answer(b"4 of 5", "t")  # both concepts
        shell.answer(b"accept 3 units, reject 1, leave 1", "y")
        shell.wait()
    assert len(git.run(proposed, "rev-list", "--first-parent", f"{before}..HEAD").split()) == 1, "one act is one commit"
    held = git.files_at(proposed, "HEAD", under=["domains"])
    assert {"domains/coding/bugs/yak.md", "domains/ops/concepts/gnu.md", "domains/ops/concepts/ibex.md"} <= held.keys()
    edited = (proposed / "domains/coding/bugs/yak.md").read_text("utf-8")
    assert "By yak, token [redacted" in edited and "ghp_" not in edited
    (left,) = nugget("review", "list", "--json").json
    assert [file["id"] for file in left["files"]] == ["pattern/zebra"]
    ledger = (isolated_home / ".nugget" / "ledger" / "rejected.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["id"] for line in ledger] == ["pattern/okapi"]


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
@pytest.mark.proves("REVIEW-KEYS")
def test_a_review_that_is_interrupted_or_not_at_a_terminal_changes_nothing(proposed, isolated_home, nugget):
    before = subprocess.run(["git", "-C", proposed, "show-ref"], check=True, capture_output=True).stdout
    with terminal("bash", isolated_home) as shell:
        shell.type("nugget review -i\n")
        shell.answer(b"1 of 5", "d")  # all three of the domain
        shell.answer(b"4 of 5", "\x03")
        shell.wait()
    assert nugget("review", "-i").code == 2
    assert subprocess.run(["git", "-C", proposed, "show-ref"], check=True, capture_output=True).stdout == before
