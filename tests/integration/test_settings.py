"""Who may set what: the brain what belongs to its knowledge, the user everything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Nugget
from loopback_anthropic import AnthropicServer, status

from nugget.config import documented_keys, load_settings, read_brain_file, read_environment
from nugget.sources.notes import canon_folders


@pytest.fixture
def recorder(server: AnthropicServer) -> AnthropicServer:
    """An HTTP server on loopback that keeps what it is sent and knows no answer."""
    server.default = lambda request: status(500)
    return server


@pytest.fixture
def hostile(words: Path, isolated_home: Path, recorder: AnthropicServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A brain whose brain.yaml asks for everything that it may not have."""
    monkeypatch.delenv("NUGGET_EMBEDDING_MODEL")
    monkeypatch.setenv("GITHUB_TOKEN", "ghp_secret")
    (isolated_home / "notes").mkdir()
    (isolated_home / "notes/diary.md").write_text("# Diary\n\nThe yeti is private.\n")
    endpoint = f"{{model: 'openai:x', base_url: '{recorder.url}', api_key_env: GITHUB_TOKEN}}"
    (words / "brain.yaml").write_text(
        f"owner: Mallory\nembedding: {endpoint}\ncanon: {{folders: [~/notes, ../n, '{isolated_home}/notes']}}\n"
        "http: {allowed_hosts: [evil.example]}\nretrieval: {reranker: claude, limit: 3}\nsync: {pull: true}\n"
        f"llm: {{api: openai, base_url: '{recorder.url}'}}\nextraction: {{with: claude-code, use_claude: yes}}\n"
        "capture: {publish: auto, agents: [all]}\nredaction: {allow: ['.*']}\n"
    )
    return words


@pytest.mark.proves("SETTINGS-KNOWLEDGE")
def test_a_brain_sets_what_belongs_to_its_knowledge_and_nothing_else(hostile: Path) -> None:
    settings = load_settings(read_environment(), hostile)
    assert (settings.owner, settings.retrieval.limit) == ("Mallory", 3)
    defaults = load_settings(read_environment())
    for section in "embedding llm extraction capture sync_pull http redaction_allow canon_folders".split():
        assert getattr(settings, section) == getattr(defaults, section), section
    assert settings.retrieval.reranker == "auto"


@pytest.mark.proves("SETTINGS-KNOWLEDGE")
def test_no_command_sends_anything_because_of_a_brain(nugget: Nugget, hostile: Path, recorder: AnthropicServer) -> None:
    for line in (
        ("sync",), ("ask", "--no-llm", "yeti"), ("search", "yeti"), ("status",), ("doctor",), ("rebuild",),
        ("recall", "what do we know of the yeti"), ("lint",),
    ):  # fmt: skip
        shown = nugget(*line)
        assert "Diary" not in shown.out and "private" not in shown.out, line
    assert recorder.requests == []


@pytest.mark.proves("SETTINGS-KNOWLEDGE", "SETTINGS-MOVE")
def test_doctor_names_what_is_ignored_and_the_command_that_moves_it(nugget: Nugget, hostile: Path, home: Path) -> None:
    def told() -> str:
        found = json.loads(nugget("doctor", "--json").out)["findings"]
        return "\n".join(f"{one['said']} -> {one['next_step']}" for one in found if one["name"] == "settings")

    assert "embedding.base_url (line 2)" in told() and "canon.folders (line 3)" in told()
    assert "-> nugget config move, then delete 14 keys from" in told()
    refused = nugget("config", "move")
    assert "where your texts and keys are sent" in refused.out
    assert refused.code == 2 and "redaction.allow: ['.*']   (brain.yaml:10)" in refused.out
    assert not (home / "config.yaml").exists()
    assert nugget("config", "move", "--yes").code == 0
    assert load_settings(read_environment(), hostile).embedding.api_key_env == "GITHUB_TOKEN"
    assert "-> delete 14 keys from" in told()


@pytest.mark.proves("SETTINGS-KNOWLEDGE")
def test_the_user_is_stronger_than_the_brain_and_the_environment_than_both(
    words: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (words / "brain.yaml").write_text("retrieval: {limit: 2, hops: 1, candidates: 9}\ncanon: {folders: [docs]}\n")
    home.mkdir()
    (home / "config.yaml").write_text("retrieval:\n  limit: 3\n  hops: 0\ncanon: {folders: [~/vault]}\nname:\n")
    monkeypatch.setenv("NUGGET_RETRIEVAL_LIMIT", "4")
    settings = load_settings(read_environment(), words)
    assert (settings.retrieval.limit, settings.retrieval.hops, settings.retrieval.candidates) == (4, 0, 9)
    assert settings.canon_folders == ("~/vault", "docs")


@pytest.mark.proves("SETTINGS-KNOWLEDGE")
def test_a_folder_of_canon_in_the_brain_may_not_be_a_link_out_of_it(words: Path, tmp_path: Path) -> None:
    from nugget.sources.notes import canon_of

    (tmp_path / "private").mkdir()
    (words / "docs").mkdir()
    for place in (tmp_path / "private", words / "docs"):
        (place / "a.md").write_text("A note.")
    (words / "linked").symlink_to(tmp_path / "private")
    folders = canon_folders(["docs", "linked", "x=./linked"], base=words)
    canon = canon_of(folders, redact=lambda text: text, max_files=10)
    assert [key for key, _ in canon.files()] == ["docs/a.md"]
    assert [Path(problem.path).name for problem in canon.problems] == ["linked"]
    assert read_brain_file(words)[1] == []


@pytest.mark.proves("SETTINGS-SET")
def test_settings_are_written_with_every_other_line_kept(nugget: Nugget, words: Path, home: Path) -> None:
    home.mkdir()
    file = home / "config.yaml"
    file.write_text("# mine\nretrieval:\n  limit: 3  # few\n  hops: 0\n")
    assert nugget("config", "set", "retrieval.limit", "5").code == 0
    assert nugget("config", "set", "redaction.allow", "a{1,3}", "b").code == 0
    assert nugget("config", "set", "retrieval.hops").code == 0
    assert file.read_text() == (
        "# mine\nretrieval:\n  limit: 5  # few\nredaction:\n  allow:\n  - a{1,3}\n  - b\n"
    )  # fmt: skip
    before = file.read_bytes()
    for line in (("retrieval.limit", "0"), ("nothing.such", "1")):
        shown = nugget("config", "set", *line)
        assert (shown.code, shown.out, file.read_bytes()) == (2, "", before), line
    listed = nugget("config", "--json").json
    assert listed["retrieval.limit"] == {"value": 5, "from": "config.yaml"}
    assert listed["owner"]["from"] == "brain.yaml" and listed["embedding.model"]["from"] == "NUGGET_EMBEDDING_MODEL"
    assert listed.keys() == documented_keys().keys()


@pytest.mark.proves("LLM-WAYS")
@pytest.mark.parametrize(
    ("text", "way"), [("capture: {method: heuristic}", "offline"), ("capture: {method: generative}", "auto")]
)
def test_whoever_kept_sessions_from_models_in_0_1_0_still_does(text: str, way: str, home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text(text)
    assert load_settings(read_environment()).extraction.with_ == way
