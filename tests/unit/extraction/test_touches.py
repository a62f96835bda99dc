"""The files that a session touched: seen by what tools returned, by git and by the disk, with hashes of contents."""

import hashlib
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from replay import STARTED, Agent, change_by_hand, git, make_repository, replay

from nugget.extraction.file_changes import file_touches
from nugget.extraction.places import Places
from nugget.infra.workspace import Workspace, find_workspace
from nugget.models import Session
from nugget.models.nuggets import FileTouch
from nugget.sources.claude_code import read_session


def sha(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def of_session(session: Session, *roots: Workspace, excluded: tuple[str, ...] = ()) -> dict[str, FileTouch]:
    return {one.path: one for one in file_touches(session, Places(session=session, roots=roots, excluded=excluded))}


def touched(agent: Agent, excluded: tuple[str, ...] = ()) -> dict[str, FileTouch]:
    return of_session(read_session(agent.transcript), find_workspace(agent.repo), excluded=excluded)


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    repo = make_repository(tmp_path / "shop")
    change_by_hand(repo, "src/auth.py", "def login():\n    return None\n")
    change_by_hand(repo, "old/a.txt", "a\n")
    change_by_hand(repo, "old/b.txt", "b\n")
    change_by_hand(repo, "README.md", "# Shop\n", at=STARTED - timedelta(days=1))
    return Agent(repo=repo, claude_config=tmp_path / "claude")


@pytest.mark.proves("PROVENANCE-TOUCHES")
def test_files_that_commands_changed_are_touches_where_disk_or_git_shows_it(agent):
    agent.run("rm README.md && git mv src/auth.py src/login.py")
    agent.run("cat > src/new.py <<'EOF'\nprint('$HOME')\nEOF")
    agent.run("rm -r old; sed -i s/None/0/ src/login.py")
    agent.run("echo generated > schema.lock")
    agent.commit("Clean up")
    agent.run("cp /etc/hostname ../outside.txt; echo x > .git/mine")
    found = touched(agent)
    assert {path: touch.action.value for path, touch in found.items()} == {
        "README.md": "deleted", "old/a.txt": "deleted", "old/b.txt": "deleted", "src/login.py": "renamed",
        "src/new.py": "created", "schema.lock": "created"
    }  # fmt: skip
    assert found["README.md"].before_hash == sha("# Shop\n")
    assert found["src/login.py"].previous_path == "src/auth.py"
    assert found["src/new.py"].after_hash == sha("print('$HOME')\n")


@pytest.mark.proves("PROVENANCE-BAD-INPUT")
def test_paths_outside_and_excluded_files_are_left_out_and_failed_edits_too(agent):
    agent.write("../elsewhere.py", "x\n")
    agent.write("secrets/key.pem", "k\n")
    agent.write("kept.py", "k\n")
    records = agent.transcript.read_text("utf-8").splitlines()
    failed = (line.replace('"is_error": false', '"is_error": true') for line in records[2:4])
    agent.transcript.write_text("\n".join(failed))
    assert touched(agent) == {}
    agent.transcript.write_text("\n".join(records))
    assert all([*touched(agent, (glob,))] == ["kept.py"] for glob in ("*.pem", f"{agent.repo}/secrets"))


@pytest.mark.proves("PROVENANCE-TOUCHES")
@pytest.mark.parametrize(
    "name", ["claude-code/2026-02-08_2956cee6_d65f53d0e8e2", "claude-code/2026-02-10_a0927dd5_48415fae24d7",
             "claude-code/2026-02-13_2577a596_5d755497c182"]
)  # fmt: skip
def test_every_hash_of_a_real_session_is_that_of_the_replayed_files(shared_data, tmp_path, name):
    played = replay(shared_data / "transcripts" / f"{name}.jsonl", tmp_path / "repo", tmp_path / "claude")
    found = of_session(played.session, find_workspace(played.repo))
    assert sorted(found) == sorted(
        path for path in played.paths if git(played.repo, "log", "--oneline", "--", path).count("\n") > 1
    )
    for path, touch in found.items():
        assert touch.after_hash == sha((played.repo / path).read_bytes())
        if touch.before_hash:
            assert touch.before_hash == sha(git(played.repo, "show", f"HEAD~1:{path}"))


@pytest.mark.proves("PROVENANCE-BAD-INPUT")
def test_a_session_whose_repository_is_gone_is_read_from_what_the_transcript_says(agent):
    agent.edit("src/auth.py", "return None", "return 1")
    agent.run("cat > notes.md <<'EOF'\nhello\nEOF")
    after = (agent.repo / "src/auth.py").read_bytes()
    shutil.rmtree(agent.repo)
    hashes = {path: touch.after_hash for path, touch in touched(agent).items()}
    assert hashes == {"src/auth.py": sha(after), "notes.md": sha("hello\n")}
