"""Every page in every state of a brain, and what a change meets: one sentence, the way on, and nothing half done."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import html5lib
import pytest
from knowledge_files import commit, shell
from web_stage import Page, form, page

from nugget.infra import git

FILE = "domains/coding/patterns/retry-with-idempotency.md"
UNIT = "brain:pattern/retry-with-idempotency"
PAGES = ("/", "/review", "/search?q=retry", f"/unit/{UNIT}", "/graph", f"/graph?focus={UNIT}", "/activity", "/why")
EVIL = '"><img src=x onerror=alert(1)>'


def empty(brain: Path) -> None:
    shell(brain, "rm", "-rq", "domains")
    shell(brain, "commit", "-qm", "Start again")


def merging(brain: Path) -> None:
    shell(brain, "checkout", "-qb", "other")
    commit_line(brain, "theirs")
    shell(brain, "checkout", "-q", "-")
    commit_line(brain, "ours")
    subprocess.run(["git", "-C", str(brain), "merge", "-q", "other"], check=False, capture_output=True)
    assert (brain / ".git/MERGE_HEAD").exists()


def commit_line(brain: Path, line: str) -> None:
    (brain / FILE).write_text((brain / FILE).read_text() + f"\n{line}\n")
    commit(brain, [FILE], line)


def locked(brain: Path) -> None:
    (brain / ".git/index.lock").touch()


def unreadable(brain: Path) -> None:
    (brain / "domains/coding/patterns/binary.md").write_bytes(os.urandom(4_000))
    (brain / "domains/coding/patterns/long.md").write_text("---\nid: pattern/long\n---\n" + "x" * 1_500_000)
    (brain / "domains/coding/patterns/broken.md").write_text(f"---\nid: [\n---\n# {EVIL}\n")


@pytest.mark.proves("WEB-PAGES")
@pytest.mark.parametrize("state", [empty, merging, locked, unreadable])
def test_every_page_is_shown_in_every_state(words: Path, state: Callable[[Path], None]) -> None:
    state(words)
    with page(words) as shown:
        for address in PAGES:
            reply = shown.get(address)
            html5lib.HTMLParser(strict=True).parse(reply.text)
            there = state is not empty or UNIT not in address
            assert reply.status_code == (200 if there else 404), (address, reply.text)
            assert len(reply.content) < 61_440 and "Traceback" not in reply.text and "<img" not in reply.text


@pytest.mark.proves("WEB-REVIEW")
@pytest.mark.parametrize("trouble", [locked, merging])
def test_what_git_refuses_is_said_and_the_marks_stay(proposed: Path, trouble: Callable[[Path], None]) -> None:
    with page(proposed) as shown:
        address, fields = form(shown.get("/review").text)
        trouble(proposed)
        head = git.head(proposed)
        reply = shown.post(address, **fields)
        assert reply.status_code == 409 and reply.text.count('value="accept" checked') == 1
        assert re.search(r'role="alert">[^<]+(delete that file|git merge --abort)', reply.text)
        added = shown.post("/add", text="Ring the bell in fog.", type="belief")
        assert added.status_code >= 400 and re.search(r"<p>[^<]+\.", added.text)
        assert git.head(proposed) == head and not list((proposed / "domains/harbour").rglob("*.md"))


@pytest.mark.proves("WEB-HOSTILE")
def test_a_branch_and_its_prompt_are_shown_as_text(words: Path) -> None:
    head = git.head(words)
    assert head
    branch = 'nugget/session-"><b>&x'
    shell(words, "checkout", "-qb", branch)
    (words / "domains/coding/patterns/evil.md").write_text(
        f"---\nid: pattern/evil\ntype: pattern\ndomain: coding\ntitle: {EVIL!r}\n---\n# {EVIL}\n\x1b[31m\u202e{EVIL}\n"
    )
    commit(words, ["domains/coding/patterns/evil.md"], f"Knowledge from {EVIL}\n\nPrompt: {EVIL}")
    shell(words, "checkout", "-q", "-")
    with page(words) as shown:
        for address in ("/", "/review"):
            text = shown.get(address).text
            html5lib.HTMLParser(strict=True).parse(text)
            assert "<img" not in text and "<b>" not in text and "\u202e" not in text and "\x1b" not in text
        assert "onerror" in text, "the proposal is shown"


@pytest.mark.proves("WEB-EDIT")
def test_on_a_full_disk_nothing_is_changed_and_the_page_says_so(words: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)], check=False).returncode:
        pytest.skip("only root can mount a small file system here")
    try:
        shell(tmp_path, "clone", "-q", str(words), str(disk / "brain"))
        with page(disk / "brain") as shown:
            full_disk(shown, disk)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def full_disk(shown: Page, disk: Path) -> None:
    assert shown.get("/search?q=retry").status_code == 200
    head, left = git.head(disk / "brain"), os.statvfs(disk)
    (disk / "filler").write_bytes(b"x" * (left.f_bavail * left.f_frsize))
    reply = shown.post("/add", text="Ring the bell in fog.", type="belief")
    assert reply.status_code in (500, 507) and re.search(r"<p>[^<]+\.", reply.text), reply.text
    (disk / "filler").unlink()
    assert git.head(disk / "brain") == head and not shell(disk / "brain", "status", "--porcelain", "domains")
    assert "was added" in shown.post("/add", text="Ring the bell in fog.", type="belief").text
