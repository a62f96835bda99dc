"""No password of a session reaches anything that Nugget keeps: proposal, archive, provenance, indexes, logs."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path

import pytest
from commands import Nugget

from nugget.app import Brain
from nugget.config import read_environment

SAID = (
    "Log in with password: hunter2secretvalue because the webhook fails otherwise",
    "Always restore the staging database with DB_PASSWORD=Birnenkompott, because the production one is rotated.",
    "We decided to keep mysql://root:toor77@db.acme.dev/shop as the database instead of sqlite.",
    "The root cause was the missing line postgres_password: kaffeepausenzeit in the compose file.",
)
RUN = (
    ("docker login -u bob -p wanderstiefel registry.acme.dev", "Error response: denied for wanderstiefel=no", True),
    ("PGPASSWORD=moewenschrei psql -h db -c 'select 1'", "user=shop password=moewenschrei dbname=shop", False),
    ("cat .env", "DB_HOST=db\nDB_PASS=sommerregen\nCLIENT_SECRET=GOCSPX-abcdefghijklmnopqrstuvwx\n", False),
    ("./deploy.sh --password lagerfeuer", "deployed", False),
)
SECRETS = (
    "hunter2secretvalue", "Birnenkompott", "toor77", "kaffeepausenzeit", "moewenschrei", "sommerregen",
    "GOCSPX-abcdefghijkl", "lagerfeuer", "regenbogenfisch",
)  # fmt: skip


def write_session(file: Path, folder: Path) -> None:
    """A session in which passwords are said, run, printed and written to a file."""
    records: list[dict[str, object]] = []

    def add(role: str, content: object, **more: object) -> None:
        number = len(records)
        records.append(
            {
                "type": role, "uuid": f"u{number}", "parentUuid": f"u{number - 1}" if number else None,
                "timestamp": f"2026-04-13T10:55:{number:02d}Z", "sessionId": file.stem, "cwd": str(folder),
                "version": "2.1.329", "isSidechain": False, "userType": "external", "gitBranch": "main",
                "message": {"role": role, "content": content, "id": f"m{number}"}, **more,
            }
        )  # fmt: skip

    for number, text in enumerate(SAID):
        add("user", text)
        add("assistant", [{"type": "text", "text": f"Understood. {text}"}])
        command, output, failed = RUN[number]
        call = {"type": "tool_use", "id": f"c{number}", "name": "Bash", "input": {"command": command}}
        add("assistant", [call])
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": output, "is_error": failed}
        add("user", [result], toolUseResult={"stdout": output, "stderr": "", "interrupted": False})
    path, text = str(folder / "config.yml"), "database:\n  user: shop\n  password: regenbogenfisch\n"
    write = {"type": "tool_use", "id": "w", "name": "Write", "input": {"file_path": path, "content": text}}
    add("assistant", [write])
    add(
        "user",
        [{"type": "tool_result", "tool_use_id": "w", "content": "File created"}],
        toolUseResult={"type": "create", "filePath": path, "content": text, "structuredPatch": []},
    )
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


def kept_in(folder: Path) -> str:
    """All bytes of a folder's files, unpacked, with all objects of its git repository."""
    parts = []
    for file in sorted(folder.rglob("*")):
        if file.is_file() and ".git" not in file.parts:
            parts.append(gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes())
    if (folder / ".git").exists():
        objects = ["git", "-C", str(folder), "cat-file", "--batch-all-objects", "--batch"]
        parts.append(subprocess.run(objects, check=True, capture_output=True).stdout)
    return b"\n".join(parts).decode("utf-8", "replace")


@pytest.mark.proves("RED-KEPT")
def test_no_password_of_a_session_reaches_anything_that_is_kept(
    isolated_home: Path, words: Path, tmp_path: Path, nugget: Nugget, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = tmp_path / "shop"
    shop.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "main", str(shop)], check=True)
    (shop / "config.yml").write_text("database:\n  user: shop\n  password: regenbogenfisch\n")
    name = "".join(char if char.isalnum() else "-" for char in str(shop))
    transcript = isolated_home / ".claude/projects" / name / "30eb2a7b-1111-4222-8333-944455556666.jsonl"
    write_session(transcript, shop)
    monkeypatch.chdir(shop)
    told = [
        str(nugget("capture-session", "--transcript", transcript, "--brain", words, "--with", "offline")),
        str(nugget("extract", "--with", "offline")),
        str(nugget("logs", "ingest")),
    ]
    with Brain(words, environment=read_environment()) as opened:
        opened.sync()
        opened.sync_local_sources()
    told += [str(nugget("search", "database password staging", "--json")), str(nugget("ask", "the database password"))]
    branches = subprocess.run(["git", "-C", str(words), "branch"], check=True, capture_output=True, text=True).stdout
    assert "nugget/session-" in branches
    home, brain = kept_in(isolated_home / ".nugget"), kept_in(words)
    everything = {"home": home, "brain": brain, "answers": "\n".join(told)}
    assert [(place, secret) for place, text in everything.items() for secret in SECRETS if secret in text] == []
    for folder in ("archive", "provenance"):
        assert "[redacted:" in kept_in(isolated_home / ".nugget" / folder), folder
    assert "[redacted:" in brain
    assert nugget("search", "restore", "--source", "sessions", "--json").json["hits"]
    for secret in SECRETS:  # The index of words: packed, so that its bytes alone say nothing.
        assert not nugget("search", secret, "--source", "sessions", "--json").json["hits"], secret
