"""Every page in every state of a brain: what it shows, what it changes, and what it refuses."""

import html
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import html5lib
import pytest
from knowledge_files import commit, shell
from waiting import wait_for
from web_stage import PORT, Page, form, harbour_notes, page

from nugget.app import browsing, open
from nugget.infra import git

UNIT = "/unit/brain:pattern/retry-with-idempotency"
FILE = "domains/coding/patterns/retry-with-idempotency.md"
PAGES = ("/", "/review", "/search", "/search?q=cache", UNIT, "/graph", f"/graph?focus={UNIT[6:]}", "/activity", "/why")
EVIL = '"><script>alert(1)</script><img src=x onerror=alert(2)>'


@pytest.fixture
def proposed(words: Path, tmp_path: Path) -> Path:
    """A brain with a proposal of 23 units."""
    with open(words) as brain:
        brain.import_notes(harbour_notes(tmp_path / "notes"), domain="harbour")
    return words


@pytest.fixture
def shown(words: Path) -> Iterator[Page]:
    with page(words) as opened:
        yield opened


def headings(text: str) -> list[str]:
    return re.findall(r"<h1[^>]*>", text)


@pytest.mark.proves("WEB-PAGES")
@pytest.mark.parametrize("address", PAGES)
def test_every_page_is_valid_and_loads_nothing_from_elsewhere(shown, address):
    reply = shown.get(address)
    assert reply.status_code == 200
    html5lib.HTMLParser(strict=True).parse(reply.text)
    assert len(headings(reply.text)) == 1 and re.search(r"<title>\S", reply.text)
    assert not re.search(r' style=|<script>| on\w+="|(?:src|href)="(?:https?:)?//', reply.text)
    assert "script-src 'self'" in reply.headers["content-security-policy"]
    assert reply.headers["cache-control"] == "no-store" and reply.headers["referrer-policy"] == "same-origin"
    assert len(reply.content) < 60_000


@pytest.mark.proves("WEB-PAGES")
def test_what_is_not_there_is_said_in_a_page(shown):
    for address in ("/nothing", "/unit/brain:pattern/nothing", "/review/nothing", "/session/nothing", "/assets/../x"):
        reply = shown.get(address)
        assert reply.status_code == 404 and len(headings(reply.text)) == 1, address
    assert shown.get("/search?q=" + "a" * 9000).status_code == 422
    for text in ("\0", "\u202e", "%ed%a0%80", "../../etc", "-" * 500, '"', "since they're passed as argv"):
        reply = shown.get(f"/search?q={quote(text)}")
        assert reply.status_code == 200 and "[redacted" not in reply.text
    for address in ("/search?q=zzzqqq", "/search?q=%22cache&type=belief", "/search?q=cache&domain=no+such"):
        assert "Nothing matches. Try other words." in shown.get(address).text, "a facet narrows any query"


@pytest.mark.proves("WEB-PAGES")
def test_a_hit_in_a_channel_leads_to_its_message(words, shown):
    (words / "bridge").mkdir()
    (words / "bridge/release.jsonl").write_text('{"from": "ada", "text": "The gondola sails <at> noon."}')
    address = re.findall(r'href="(/unit/bridge[^"]+)"', shown.get("/search?q=gondola").text)[0]
    assert "The gondola sails &lt;at&gt; noon." in shown.get(address).text


@pytest.mark.proves("WEB-GATE")
def test_a_key_lets_one_browser_in_once(shown):
    key = browsing.new_key(shown.home, PORT)
    shown.client.cookies.clear()
    assert shown.get("/").status_code == 401 and shown.get("/enter?key=wrong").status_code == 401
    assert shown.get(f"/enter?key={key}").status_code == 200
    assert shown.client.cookies[f"nugget-{PORT}"] != key
    shown.client.cookies.clear()
    assert shown.get(f"/enter?key={key}").status_code == 401
    shown.client.cookies[f"nugget-{PORT}"] = "x" * 43
    assert shown.get("/").status_code == 401 and shown.get("/", cookie="a[b]=\x01; =;").status_code == 401
    assert (shown.home / f"run/web-{PORT}.key").stat().st_mode & 0o077 == 0


@pytest.mark.proves("WEB-GATE")
def test_other_hosts_and_other_pages_are_refused(shown, words):
    for host in ("evil.example:5034", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:5034", ""):
        assert shown.get("/", host=host).status_code == 421
    assert shown.get("/", sec_fetch_site="cross-site", sec_fetch_mode="no-cors").status_code == 403
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert shown.get("/", **link).status_code == 200
    assert shown.get("/", **link | {"sec_fetch_dest": "iframe"}).status_code == 403
    before = git.head(words)
    form = {"text": "Never do this.", "type": "belief", "domain": "x"}
    for headers in (
        {}, {"sec-fetch-site": "cross-site", "origin": "http://evil.example"}, {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "same-site", "origin": f"http://127.0.0.1:{PORT}"},
    ):  # fmt: skip
        assert shown.client.post("/add", data=form, headers=headers).status_code == 403
    assert shown.client.put("/", headers={"sec-fetch-site": "same-origin"}).status_code == 403
    assert git.head(words) == before
    assert shown.post("/add", text="x" * 5_000_000, type="belief").status_code == 413


@pytest.mark.proves("WEB-HOSTILE")
def test_what_a_unit_holds_is_shown_as_text(words):
    body = (
        f"# {EVIL}\n\n<script>alert(3)</script>\n\n[click](javascript:alert(4)) ![picture](https://evil.example/x.png)\n\n"
        f"<div hx-get='/x'>\u202e</div> \x1b[31m " + "a" * 10_000
    )
    (words / "domains/evil/patterns").mkdir(parents=True)
    (words / "domains/evil/patterns/evil.md").write_text(
        "---\nid: pattern/evil\ntype: pattern\ndomain: evil\ntags: ['<b>']\nconfidence: 0.5\n"
        f"title: {EVIL + ' `<i>`'!r}\n---\n{body}\n"
    )
    commit(words, ["domains/evil/patterns/evil.md"], EVIL + " 7z a -pNectar6")
    with page(words) as shown:
        for address in "/unit/brain:pattern/evil /search?q=alert /graph?focus=brain:pattern/evil /graph /".split():
            text = shown.get(address).text
            html5lib.HTMLParser(strict=True).parse(text)
            assert "<script>alert" not in text and "<img" not in text and "\u202e" not in text and "\x1b" not in text
            assert not re.search(r'href="javascript|<div hx-get', text)
        text = shown.get("/unit/brain:pattern/evil").text
        assert 'href="https://evil.example/x.png"' in text and "nofollow" in text
        assert "<code>&lt;i&gt;</code></h1>" in text and "&lt;i&gt; · Nugget</title>" in text


@pytest.mark.proves("WEB-EDIT")
def test_a_unit_is_edited_restored_moved_and_forgotten(shown, words):
    def fields(text: str) -> tuple[str, str]:
        found = re.search(r'name="digest" value="(\w+)".*?<textarea id="text"[^>]*>\n(.*?)</textarea>', text, re.DOTALL)
        assert found
        return found[1], found[2].replace("&#39;", "'").replace("&#34;", '"').replace("&gt;", ">").replace("&lt;", "<")

    digest, file = fields(shown.get(UNIT).text)
    edited = file.rstrip() + "\n\nOne line more.\n"
    reply = shown.post(UNIT, act="edit", digest=digest, text=edited.replace("\n", "\r\n"))
    assert reply.status_code == 200 and "One line more." in reply.text and "Your edit is saved." in reply.text
    assert git.versions_of(words, FILE)[0].message.startswith("Edit ")
    late = shown.post(UNIT, act="edit", digest=digest, text=file + "Typed in vain?\n")
    assert late.status_code == 409 and "has changed since" in late.text and "Typed in vain?" in late.text
    digest, _ = fields(shown.get(UNIT).text)
    broken = shown.post(UNIT, act="edit", digest=digest, text="no frontmatter")
    assert broken.status_code == 409 and ">\nno frontmatter</textarea>" in broken.text
    assert shown.post(UNIT, act="edit", digest=digest, text=file).status_code == 200
    assert "One line more." not in shown.get(UNIT).text.split("History")[0]
    moved = shown.post(UNIT, act="move", domain="operations")
    assert moved.status_code == 200 and "operations" in moved.text
    assert shown.post(UNIT, act="forget").status_code == 200 and shown.get(UNIT).status_code == 404


@pytest.mark.proves("WEB-PULSE")
def test_the_pulse_tells_what_changed_by_the_file_system_alone(shown, words):
    first = shown.get("/pulse")
    assert set(first.json()) == {"review", "index", "log"}
    assert shown.get("/pulse", if_none_match=first.headers["etag"]).status_code == 304
    shown.post("/add", text="Something new was learned here.", type="concept")
    later = shown.get("/pulse", if_none_match=first.headers["etag"])
    assert later.status_code == 200 and later.json()["index"] != first.json()["index"]


@pytest.mark.proves("WEB-REVIEW")
def test_a_proposal_is_decided_in_one_commit_against_what_was_seen(words, tmp_path):
    notes = tmp_path / "notes"
    notes.mkdir()
    for name in ("wind", "rain", "snow"):
        text = f"Close the hatches when {name} comes, because the cargo suffers from it. Ask the mate of the watch."
        (notes / f"{name}.md").write_text(f"# When {name} comes to the harbour\n\n{text} Then write it into the log.\n")
    with open(words) as brain:
        brain.import_notes(notes, domain="harbour")
    with page(words) as shown:
        text = shown.get("/review").text
        html5lib.HTMLParser(strict=True).parse(text)
        sha = re.search(r'name="sha" value="(\w+)"', text)
        paths = re.findall(r'name="path-\d+" value="([^"]+)"', text)
        address = re.search(r'id="review" action="([^"]+)"', text)
        assert sha and address and len(paths) == 3 and "cargo suffers" in text
        fields = {f"path-{number}": path for number, path in enumerate(paths)}
        assert shown.post(address[1], sha=sha[1], **fields).status_code == 422
        marks = {"mark-0": "accept", "mark-1": "reject", "mark-2": "later"}
        wrong = shown.post(address[1], sha="0" * 40, **fields, **marks)
        assert wrong.status_code == 409 and wrong.text.count('value="accept" checked') == 1
        done = shown.post(address[1], sha=sha[1], **fields, **marks)
        assert "1 accepted, 1 rejected" in done.text and (words / paths[0]).is_file()
        again = shown.post(address[1], sha=sha[1], **fields, **marks)
        assert again.status_code in (404, 409) and not (words / paths[2]).exists()
        commit = re.search(r'name="commit" value="(\w+)"', done.text)
        assert commit
        assert shown.post("/undo", commit="0" * 40).status_code == 404 and (words / paths[0]).exists()
        assert "was undone" in shown.post("/undo", commit=commit[1]).text
        assert not (words / paths[0]).exists()
        forged = shown.get(f"/?done=add&commit={commit[1]}", sec_fetch_site="cross-site", sec_fetch_mode="navigate",
                           sec_fetch_dest="document")  # fmt: skip
        assert "Undo" not in forged.text


@pytest.mark.proves("WEB-GATE")
def test_a_link_from_elsewhere_asks_nothing_in_the_name_of_a_person(shown):
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert shown.get("/search?q=planted+by+a+link", **link).status_code == 200
    shown.get("/search?q=typed+by+a+person", sec_fetch_site="same-origin")
    text = shown.get("/activity").text
    assert "typed by a person" in text and "planted by" not in text


@pytest.mark.proves("WEB-EDIT")
def test_a_unit_says_why_it_is_stale_and_opens_in_an_editor(words, tmp_path, monkeypatch):
    opened = tmp_path / "opened"
    (tmp_path / "editor").write_text(f'#!/bin/sh\necho "$@" > {opened}.new && mv {opened}.new {opened}\n')
    (tmp_path / "editor").chmod(0o755)
    monkeypatch.setenv("EDITOR", f"{tmp_path / 'editor'} --wait")
    file = next((words / "domains").rglob("retry-with-idempotency.md"))
    with page(words) as shown:
        assert "may not hold any more" not in shown.get(UNIT).text
        file.write_text(file.read_text().replace("---\n", "---\nstale_after: 2020-01-01\n", 1))
        with open(words) as brain:
            brain.sync()
        assert "it was valid until 2020-01-01" in shown.get(UNIT).text
        assert "was opened in your editor" in shown.post(UNIT, act="open").text
        wait_for(opened.exists)
    assert opened.read_text() == f"--wait {file}\n"


@pytest.mark.proves("WEB-REVIEW")
def test_marks_and_edits_stay_when_the_page_of_a_proposal_is_turned(proposed):
    with page(proposed) as shown:

        def fields(text: str) -> dict[str, str]:
            made = dict(re.findall(r'name="(path-\d+|sha)" value="([^"]+)"', text))
            hidden = dict(re.findall(r'type="hidden" name="(mark-\d+)" value="(\w+)"', text))
            edits = dict(
                re.findall(r'name="(text-\d+)" aria-label="Your text"[^>]*>\n(.*?)</textarea>', text, re.DOTALL)
            )
            return made | hidden | {name: html.unescape(edit) for name, edit in edits.items()}

        first = shown.get("/review").text
        address = re.search(r'id="review" action="([^"]+)"', first)
        edit = re.search(r'name="text-0"[^>]*>\n(.*?)</textarea>', first, re.DOTALL)
        assert address and edit and first.count("<article") == 20
        edited = html.unescape(edit[1]) + "Hang it up.\n"
        second = shown.post(f"{address[1]}?page=2", turn="2", **fields(first), **{"mark-0": "accept", "text-0": edited})
        assert second.status_code == 200 and second.text.count("<article") == 3 and "Hang it up." in second.text
        back = shown.post(address[1], turn="1", **fields(second.text), **{"mark-1": "reject"}).text
        assert back.count('value="accept" checked') == 1 and "Hang it up." in back and 'value="reject"' in back
        stale = shown.post(address[1], turn="1", **fields(second.text) | {"sha": "0" * 40}).text
        assert "changed since you looked" in stale and "Hang it up." in stale
        done = shown.post(f"{address[1]}?page=2", **fields(second.text), **{"mark-1": "reject"})
        assert "1 accepted, 1 rejected" in done.text
        (file,) = (proposed / "domains/harbour").rglob("*.md")
        assert "Hang it up." in file.read_text()


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
def test_every_page_is_shown_in_every_state(words, state):
    state(words)
    with page(words) as shown:
        for address in PAGES:
            reply = shown.get(address)
            html5lib.HTMLParser(strict=True).parse(reply.text)
            there = state is not empty or UNIT[6:] not in address
            assert reply.status_code == (200 if there else 404), (address, reply.text)
            assert len(reply.content) < 61_440 and "Traceback" not in reply.text and "<img" not in reply.text


@pytest.mark.proves("WEB-REVIEW", "BRAIN-READY")
@pytest.mark.parametrize("trouble", [locked, merging])
def test_what_git_refuses_is_said_and_the_marks_stay(proposed, trouble):
    with page(proposed) as shown:
        address, fields = form(shown.get("/review").text)
        trouble(proposed)
        head = git.head(proposed)
        reply = shown.post(address, **fields)
        assert reply.status_code == 409 and reply.text.count('value="accept" checked') == 1
        assert re.search(r'role="alert">[^<]+(delete that file|git merge --continue` or `--abort)', reply.text)
        added = shown.post("/add", text="Ring the bell in fog.", type="belief")
        assert added.status_code >= 400 and re.search(r"<p>[^<]+\.", added.text)
        assert git.head(proposed) == head and not list((proposed / "domains/harbour").rglob("*.md"))
