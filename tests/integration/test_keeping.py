"""What a person takes back, pauses, erases and backs up: on real brains, transcripts and archives."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import time
from pathlib import Path

import pytest
from commands import Nugget
from sessions import write_transcript

from nugget.infra import git

MARK = "zanzibarite"


@pytest.mark.proves("UNDO")
def test_changes_are_listed_and_taken_back_from_the_last_one_on(nugget: Nugget, words: Path) -> None:
    for text in ("Quokkas smile because of their jaws.", "Wombats dig with flat backs."):
        assert nugget("add", text, "--domain", "zoology").code == 0
    before = git.files_at(words, "HEAD")
    unit = "pattern/" + min(Path(words, "domains/zoology/patterns").glob("*.md")).stem
    assert nugget("mv", unit, "--domain", "animals").code == 0
    (words / "untracked.md").write_text("mine")

    assert nugget("undo").out.startswith(f"Taken back: Move {unit}")
    assert git.files_at(words, "HEAD") == before and (words / "untracked.md").read_text() == "mine"
    assert nugget("undo", "--json").json["kind"] == "added"
    assert nugget("undo").code == 0 and not list(Path(words, "domains").glob("zoology/patterns/*.md"))
    assert nugget("search", "wombats", "-q").out == ""
    listed = nugget("log", "--json").json["changes"]
    assert [one["kind"] for one in listed] == ["taken back"] * 3 + ["moved", "added", "added"]


@pytest.mark.proves("UNDO")
def test_undo_keeps_what_changed_since_and_refuses_where_it_cannot(nugget: Nugget, words: Path) -> None:
    assert nugget("add", "Quokkas smile because of their jaws.", "--domain", "zoology").code == 0
    (file,) = Path(words, "domains/zoology/patterns").glob("*.md")
    file.write_text(file.read_text() + "\nMore by hand.\n")
    dirty = nugget("undo")
    assert dirty.code == 1 and "uncommitted" in dirty.err
    git.run(words, "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qam", "By hand")
    head = git.head(words)
    refused = nugget("undo")
    assert refused.code == 1 and "was changed since" in refused.err and git.head(words) == head
    assert "More by hand." in file.read_text()


def conversation(home: Path, name: str) -> Path:
    file = home / ".claude" / "projects" / "-srv-shop" / f"{name}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_transcript(file, [(f"Remember: never cache the {MARK}, it goes stale.", f"I will not cache the {MARK}.")],
                     session=name)  # fmt: skip
    os.utime(file, (time.time() - 3600,) * 2)
    return file


@pytest.mark.proves("PAUSE")
def test_nothing_is_captured_while_paused_not_later_either(nugget: Nugget, words: Path, isolated_home: Path) -> None:
    one = conversation(isolated_home, "11111111-0000-4000-8000-000000000001")
    assert nugget("pause", "--session", one.stem).code == 0
    assert nugget("capture", "--catch-up", "--json").json["found"] == 0
    assert nugget("pause", "--session", one.stem, "--end").code == 0
    assert nugget("pause").code == 0
    assert "paused: no session is captured. Next: nugget pause --end" in nugget("status").out
    os.utime(one)
    os.utime(one, (time.time() + 1,) * 2)
    assert nugget("pause", "--end").code == 0
    os.utime(one, (time.time() - 3600,) * 2)
    assert nugget("capture", "--catch-up", "--json").json["found"] == 1


@pytest.mark.proves("ERASE")
def test_an_erased_session_is_in_no_file_of_ours_and_is_not_read_again(
    nugget: Nugget, words: Path, isolated_home: Path
) -> None:
    file, home = conversation(isolated_home, "22222222-0000-4000-8000-000000000002"), isolated_home / ".nugget"
    for line in ("capture --catch-up", "sync", "extract --all"):
        assert nugget(*line.split()).code == 0
    assert nugget("search", "stale", "--source", "sessions", "-q").out

    def holding() -> list[str]:
        read = {one: one.read_bytes() for one in home.rglob("*") if one.is_file()}
        plain = {one: gzip.decompress(text) if one.suffix == ".gz" else text for one, text in read.items()}
        return [str(one) for one, text in plain.items() if MARK.encode() in text]

    assert {Path(one).parent.name for one in holding()} >= {"archive", ".nugget"}
    erased = nugget("erase", "--session", file.stem[:8], "--json").json
    assert erased["session"] == file.stem and "index.db" in erased["removed"]
    assert holding() == []
    nugget("sync")
    assert nugget("capture", "--catch-up", "--json").json["found"] == 0 and holding() == []
    assert nugget("sessions", "--all", "--json").json["sessions"] == [] and file.exists()


@pytest.mark.proves("BACKUP")
def test_a_backup_brings_back_what_cannot_be_derived(nugget: Nugget, words: Path, isolated_home: Path) -> None:
    conversation(isolated_home, "33333333-0000-4000-8000-000000000003")
    assert nugget("capture", "--catch-up").code == 0 and nugget("sync").code == 0
    home, archive = isolated_home / ".nugget", isolated_home / "kept.tar.gz"
    assert nugget("backup", archive).code == 0 and archive.stat().st_mode & 0o077 == 0
    assert nugget("backup", archive).code == 2 and nugget("restore", archive).code == 1
    listed = nugget("sessions", "--all", "--json").json
    home.rename(isolated_home / "before")
    assert nugget("restore", archive).code == 0
    kept = ("ledger/captures.jsonl", "archive/33333333-0000-4000-8000-000000000003.jsonl.gz")
    for name in kept:
        assert (home / name).read_bytes() == (isolated_home / "before" / name).read_bytes()
    assert not (home / "index.db").exists() and (home / "ledger").stat().st_mode & 0o077 == 0
    assert nugget("sessions", "--all", "--json").json == listed
    assert nugget("capture", "--catch-up", "--json").json["found"] == 0


@pytest.mark.proves("BACKUP")
@pytest.mark.parametrize("kind", ["parent", "absolute", "link", "hardlink", "device", "cut off", "no archive"])
def test_a_hostile_archive_restores_nothing(nugget: Nugget, tmp_path: Path, isolated_home: Path, kind: str) -> None:
    archive, stolen = tmp_path / "bad.tar.gz", tmp_path / "stolen"
    with tarfile.open(archive, "w:gz") as made:
        good = tarfile.TarInfo("config.yaml")
        made.addfile(good, io.BytesIO(b""))
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
