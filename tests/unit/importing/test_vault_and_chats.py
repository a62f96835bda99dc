"""What a vault links is related in the brain; conversations of ChatGPT and Claude are sessions."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from commands import Nugget

SECRET = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
LONG = "so that nobody has to guess what happens when the queue is full and the worker is away for the night."
CHATGPT = {
    "title": "Queue sizes", "conversation_id": "c0ffee00-0000-4000-8000-000000000001", "current_node": "n4",
    "mapping": {
        "n0": {"parent": None, "message": None},
        "n1": {"parent": "n0", "message": {"author": {"role": "system"}, "content": {"parts": ["be kind"]}}},
        "n2": {"parent": "n1", "message": {"author": {"role": "user"}, "create_time": 1772366400.0, "content": {
            "parts": [{"asset_pointer": "file"}, f"Why does {SECRET} fail in tanager?"]}}},
        "dropped": {"parent": "n2", "message": {"author": {"role": "assistant"}, "content": {"parts": ["regretted"]}}},
        "n4": {"parent": "n2", "message": {"author": {"role": "assistant"}, "create_time": 1772366460.0,
                                           "content": {"parts": ["Because the tanager queue is full."]}}},
    },
}  # fmt: skip
CLAUDE = {
    "uuid": "c0ffee00-0000-4000-8000-000000000002", "name": "Names of queues", "chat_messages": [
        {"uuid": "m1", "sender": "human", "text": "How do we name queues?", "created_at": "2026-03-01T12:00:00Z",
         "attachments": [{"file_name": "a.txt", "extracted_content": "queue-1"}]},
        {"uuid": "m2", "sender": "assistant", "created_at": "2026-03-01T12:05:00Z",
         "content": [{"type": "thinking", "text": "hm"}, {"type": "text", "text": "After the bittern event."}]},
    ],
}  # fmt: skip


@pytest.mark.proves("IMPORT-GRAPH")
def test_links_aliases_and_embeds_become_relations(nugget: Nugget, words: Path, tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    (vault / "ops").mkdir(parents=True)
    (vault / "Daily").mkdir()
    notes = {
        "ops/Queue limits.md": "---\naliases: [Backpressure]\nstatus: evergreen\ntags: [queues]\n---\n# Queue limits\n"
                               f"Cap each queue, see [[Retry policy|how we retry]], {LONG} ![[limits.png]]\n",
        "Retry policy.md": f"# Retry policy\n\nRetry twice under [[backpressure#Limits]] and ![[Timeouts]], {LONG}\n",
        "Timeouts.md": "# Timeouts\n\nAs [we retry](./Retry%20policy.md) or [limit](ops/Queue limits.md), "
                       f"{LONG} [[Nowhere]]\n",
        "Daily/2026-03-01.md": f"# Today\n\nNothing much, {LONG}\n",
    }  # fmt: skip
    for name, text in notes.items():
        (vault / name).write_text(text, "utf-8")
    done = nugget("import", vault)
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
def test_conversations_are_sessions_that_are_found_shown_and_captured(
    nugget: Nugget, words: Path, tmp_path: Path, form: str
) -> None:
    folder = tmp_path / "export"
    folder.mkdir()
    text = json.dumps([CHATGPT, CLAUDE, {"mapping": 3}, "noise", {"uuid": "x", "chat_messages": [None]}])
    (folder / "conversations.json").write_text(text, "utf-8")
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
def test_what_is_no_export_is_refused_in_a_sentence(nugget: Nugget, words: Path, tmp_path: Path, text: str) -> None:
    file = tmp_path / "conversations.json"
    file.write_text(text, "utf-8")
    done = nugget("import", file)
    assert done.code == 2 and done.err.startswith("Error: ") and "Traceback" not in done.err
