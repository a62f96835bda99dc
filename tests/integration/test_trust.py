"""A folder that was not chosen is data: brains found by their place, and what a brain's settings may say."""

import json
import os
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from commands import hook
from loopback_anthropic import AnthropicServer, status
from mcp_wire import asked_over_mcp
from paths import REPOSITORY
from programs import program

from nugget.config import Settings, documented_keys, load_settings, read_brain_file, read_environment
from nugget.upkeep import default_brain, trusted

COMMANDS = (
    ("ask", "yeti"), ("search", "yeti"), ("get", "pattern/x"), ("suggest",), ("sync",), ("rebuild",), ("status",),
    ("doctor",), ("add", "A thing."), ("forget", "pattern/x"), ("mv", "pattern/x", "--domain", "coding"), ("lint",),
    ("review",), ("eval",), ("queries",), ("context", "."), ("extract",),
    ("brief",), ("recall", "what is known of the yeti"),
    ("capture-session", "--transcript", "x.jsonl"), ("serve", "--http", "127.0.0.1:0"), ("config",),
)  # fmt: skip


@pytest.fixture
def planted(brain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cloned repository that is a brain, with a program in git's configuration; git itself notes its calls."""
    ran, real_git = tmp_path / "ran", shutil.which("git")
    for name, then in (("git", f'exec {real_git} "$@"'), ("evil", "exit 0")):
        program(tmp_path / "bin" / name, f'echo {name} "$PWD" "$@" >> {ran}\n{then}')
    subprocess.run(["git", "-C", str(brain), "config", "core.fsmonitor", str(tmp_path / "bin/evil")], check=True)
    (brain / "brain.yaml").write_text("owner: [\nembedding: {model: none}\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    monkeypatch.chdir(brain / "domains")
    return brain


def sentence(brain: Path) -> str:
    return f"The brain in {brain} is not trusted; run `nugget trust {brain}` to use it."


@pytest.mark.proves("TRUST-FIRST")
def test_every_command_answers_with_one_sentence_and_runs_nothing(nugget, planted, tmp_path):
    for line in COMMANDS:
        shown = nugget(*line)
        assert (shown.code, shown.out, shown.err) == (2, "", f"Error: {sentence(planted)}\n"), line
    assert not (tmp_path / "ran").exists() and not (planted / ".nugget").exists()


@pytest.mark.proves("TRUST-FIRST")
def test_agents_and_hooks_get_the_same_sentence(planted, tmp_path, queue_lock):
    answer = asked_over_mcp(task_description="yeti", path="coding/x.md")
    (block,) = answer["content"]
    assert answer["isError"] and sentence(planted) in block["text"] and "\n" not in block["text"]
    for event in ("SessionStart", "UserPromptSubmit"):
        said = {"hook_event_name": event, "cwd": str(planted), "prompt": "What is known of the yeti?"}
        assert json.loads(hook(said, "--brief", "--recall").stdout) == {"systemMessage": sentence(planted)}
    assert not (tmp_path / "ran").exists()


@pytest.mark.proves("TRUST-FIRST", "TRUST-RECORD")
def test_a_trusted_brain_is_used_with_an_index_of_ones_own(nugget, planted, home):
    (planted / ".nugget").mkdir()
    (planted / ".nugget/index.db").write_bytes(b"whatever came with the folder")
    assert nugget("trust", planted).code == 0 and not (planted / ".nugget").exists()
    shown = nugget("search", "cache", "--json")
    assert shown.code == 0 and shown.json["hits"]
    assert stat.S_IMODE((home / "trusted.json").stat().st_mode) == 0o600
    assert nugget("trust", "--list").out == f"{planted}\n"
    assert nugget("trust", "--remove", planted).code == 0
    assert nugget("search", "cache").err == f"Error: {sentence(planted)}\n"


@pytest.mark.proves("TRUST-OWNED")
@pytest.mark.parametrize("place", [".", "brain.yaml", ".git", ".."])
def test_a_brain_that_others_can_write_to_is_not_trusted(nugget, planted, place):
    opened = Path(os.path.normpath(planted / place))
    opened.chmod(0o777)
    told = f"others can write to {opened} (`chmod go-w` changes that)."
    assert nugget("trust", planted).err == f"Error: {planted} cannot be trusted: {told}\n"
    assert nugget("status").err.endswith(f"is not trusted, and it cannot be: {told}\n")
    opened.chmod(0o755)
    assert nugget("trust", planted).code == 0
    opened.chmod(0o757)
    assert nugget("status").err == f"Error: The brain in {planted} cannot be used from here: {told}\n"
    if place == "..":
        opened.chmod(0o1777)  # like /tmp: what is there can be renamed by its owner alone
        assert nugget("status").code == 0


@pytest.mark.proves("CLONE")
def test_a_clone_is_checked_trusted_and_read(nugget, planted, tmp_path, monkeypatch):
    hooks = tmp_path / "template/hooks"
    hooks.mkdir(parents=True)
    (hooks / "post-checkout").symlink_to(tmp_path / "bin/evil")
    subprocess.run(["git", "config", "--global", "init.templateDir", str(tmp_path / "template")], check=True)
    (planted / ".nugget").mkdir()
    (planted / ".nugget/index.db").write_text("not an index")
    (planted / "brain.yaml").write_text("owner: Ada\n")
    for command in (["add", "-fA"], ["commit", "-qm", "More"]):
        subprocess.run(["git", "-C", str(planted), "-c", "core.fsmonitor=false", *command], check=True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ran").unlink()
    shown = nugget("clone", planted, "mine")
    assert shown.code == 0 and f"{tmp_path / 'mine'}; it is trusted and the default" in shown.out
    assert not any(line.startswith("evil") for line in (tmp_path / "ran").read_text().splitlines())
    assert not [*tmp_path.glob(".*.nugget-clone")]
    assert default_brain(read_environment()) == tmp_path / "mine"
    monkeypatch.chdir(tmp_path / "mine")
    assert nugget("search", "cache", "--json").json["hits"]


@pytest.mark.proves("CLONE")
def test_what_cannot_be_cloned_leaves_nothing(nugget, planted, tmp_path):
    plain, empty = tmp_path / "plain", tmp_path / "empty"
    for folder in (plain, empty):
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
    subprocess.run(["git", "-C", str(plain), "commit", "--allow-empty", "-qm", "x"], check=True)
    before = {*tmp_path.iterdir()}
    open_to_all = tmp_path / "bin/open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    for url, folder, told in (
        (plain, "new", "is not a brain: it has no brain.yaml"),
        (empty, "new", f"is an empty repository.\n`nugget init --remote {empty}` makes a brain"),
        (f"ext::{tmp_path / 'bin/evil'}", "new", "transport 'ext' not allowed"),
        ("--upload-pack=evil", "new", "may not begin with `-`"),
        (tmp_path / "gone", "new", "there is no such repository"),
        (planted, "plain", "exists already"),
        (planted, "bin/open/new", f"others can write to {open_to_all}"),
    ):
        shown = nugget("clone", "--", url, tmp_path / folder)
        assert shown.code and told in shown.err and "Traceback" not in shown.err, url
    assert {*tmp_path.iterdir()} - {tmp_path / "ran"} == before - {tmp_path / "ran"}
    assert not any(line.startswith("evil") for line in (tmp_path / "ran").read_text().splitlines())
    assert trusted(read_environment()) == []


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
        "capture: {publish: auto, agents: [all], notes: true}\nredaction: {allow: ['.*']}\n"
    )
    return words


@pytest.mark.proves("SETTINGS-KNOWLEDGE")
def test_a_brain_sets_what_belongs_to_its_knowledge_and_nothing_else(hostile):
    settings = load_settings(read_environment(), hostile)
    assert settings == replace(load_settings(read_environment()), owner="Mallory", retrieval_limit=3)


@pytest.mark.proves("SETTINGS-KNOWLEDGE")
def test_no_command_sends_anything_because_of_a_brain(nugget, hostile, recorder):
    for line in (
        ("sync",), ("ask", "--no-llm", "yeti"), ("search", "yeti"), ("status",), ("doctor",), ("rebuild",),
        ("recall", "what do we know of the yeti"), ("lint",),
    ):  # fmt: skip
        shown = nugget(*line)
        assert "Diary" not in shown.out and "private" not in shown.out, line
    assert recorder.requests == []


@pytest.mark.proves("SETTINGS-KNOWLEDGE", "SETTINGS-MOVE")
def test_doctor_names_what_is_ignored_and_the_command_that_moves_it(nugget, hostile, home):
    def told() -> str:
        found = json.loads(nugget("doctor", "--json").out)["findings"]
        return "\n".join(f"{one['said']} -> {one['next_step']}" for one in found if one["name"] == "settings")

    assert "embedding.base_url (line 2)" in told() and "canon.folders (line 3)" in told()
    assert "-> nugget config move, then delete 15 keys from" in told()
    assert "where your texts and keys are sent" in (refused := nugget("config", "move")).out
    assert refused.code == 2 and "redaction.allow: ['.*']   (brain.yaml:10)" in refused.out
    assert not (home / "config.yaml").exists() and nugget("config", "move", "--yes").code == 0
    assert load_settings(read_environment(), hostile).embedding_api_key_env == "GITHUB_TOKEN"
    assert "-> delete 15 keys from" in told()
    (home / "config.yaml").write_text("redaction: {allow: ['([']}", "utf-8")
    assert "1: `redaction.allow` must be a list of regular" in told() and "embedding" in nugget("doctor").out


@pytest.mark.proves("SETTINGS-KNOWLEDGE")
def test_the_user_is_stronger_than_the_brain_and_the_environment_than_both(words, home, monkeypatch):
    (words / "brain.yaml").write_text("retrieval: {limit: 2, hops: 1, candidates: 9}\ncanon: {folders: [docs]}\n")
    home.mkdir()
    (home / "config.yaml").write_text("retrieval:\n  limit: 3\n  hops: 0\ncanon: {folders: [~/vault]}\nname:\n")
    monkeypatch.setenv("NUGGET_RETRIEVAL_LIMIT", "4")
    settings = load_settings(read_environment(), words)
    assert (settings.retrieval_limit, settings.retrieval_hops, settings.retrieval_candidates) == (4, 0, 9)
    assert settings.canon_folders == ("~/vault", "docs")


@pytest.mark.proves("SETTINGS-KNOWLEDGE")
def test_a_folder_of_canon_in_the_brain_may_not_be_a_link_out_of_it(words, tmp_path):
    from nugget.sources.notes import open_canon

    (tmp_path / "private").mkdir()
    (words / "docs").mkdir()
    for place in (tmp_path / "private", words / "docs"):
        (place / "a.md").write_text("A note.")
    (words / "linked").symlink_to(tmp_path / "private")
    canon = open_canon(read_environment(), Settings(canon_folders=("docs", "linked", "x=./linked")), words)
    assert [key for key, _ in canon.files()] == ["docs/a.md"]
    assert [Path(problem.path).name for problem in canon.problems] == ["linked"]
    assert read_brain_file(words)[1] == []


@pytest.mark.proves("SETTINGS-SET")
def test_settings_are_written_with_every_other_line_kept(nugget, words, home):
    home.mkdir()
    file = home / "config.yaml"
    file.write_text("# mine\nretrieval:\n  limit: 3  # few\n  hops: 0\nretrieval.limit: 4\n")
    assert nugget("config", "set", "retrieval.limit", "5").code == 0
    assert nugget("config", "set", "redaction.allow", "a{1,3}", "b").code == 0
    assert nugget("config", "set", "retrieval.hops").code == 0
    assert file.read_text() == "# mine\nretrieval:\n  limit: 5  # few\nredaction:\n  allow:\n  - a{1,3}\n  - b\n"
    before = file.read_bytes()
    for line in (("retrieval.limit", "0"), ("nothing.such", "1"), ("name", "a\udcff")):
        shown = nugget("config", "set", *line)
        assert (shown.code, shown.out, file.read_bytes()) == (2, "", before), line
    listed = nugget("config", "--json").json
    assert listed["retrieval.limit"] == {"value": 5, "from": "config.yaml"}
    assert listed["owner"]["from"] == "brain.yaml" and listed["embedding.model"]["from"] == "NUGGET_EMBEDDING_MODEL"
    assert listed.keys() == documented_keys().keys()
    file.write_text("name: a\nname: b\n")
    assert nugget("config", "set", "owner", "x").err.startswith(f"Error: {file}:2: this key is in the file twice.\n")


@pytest.mark.proves("LLM-WAYS")
@pytest.mark.parametrize(
    ("text", "way"), [("capture: {method: heuristic}", "offline"), ("capture: {method: generative}", "auto")]
)
def test_whoever_kept_sessions_from_models_in_0_1_0_still_does(text, way, home):
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text(text)
    assert load_settings(read_environment()).extraction_with == way


@pytest.mark.proves("BRAIN-CONTAINED")
def test_memory_and_channels_of_a_brain_may_not_be_links_out_of_it(nugget, words, tmp_path):
    for folder in (tmp_path / "private", words / "memory"):
        folder.mkdir()
    for name, text in (("diary.md", "The wombat is private."), ("a.jsonl", '{"text": "The wombat is private."}')):
        (tmp_path / "private" / name).write_text(text)
    (words / "memory/zealot").symlink_to(tmp_path / "private")
    (words / "bridge").symlink_to(tmp_path / "private")
    assert "private" not in nugget("search", "wombat", "--as", "zealot").out


@pytest.mark.proves("BRAIN-CONTAINED")
@pytest.mark.parametrize("place", [".nugget", ".nugget/evals"])
def test_an_index_folder_with_a_link_in_it_is_not_used(nugget, words, tmp_path, place):
    foreign = tmp_path / "foreign" / place
    foreign.mkdir(parents=True)
    (words / place).parent.mkdir(exist_ok=True)
    (words / place).symlink_to(foreign)
    assert nugget("search", "cache", "--json").json["hits"]
    nugget("doctor", "--repair")
    assert not [*foreign.iterdir()] and stat.S_IMODE(foreign.stat().st_mode) == 0o755


@pytest.mark.proves("BRAIN-CONTAINED")
def test_init_does_not_write_through_a_link(nugget, brain, tmp_path):
    (tmp_path / "profile").write_text("mine\n")
    (brain / ".gitignore").unlink()
    (brain / ".gitignore").symlink_to(tmp_path / "profile")
    assert "symbolic link out" in nugget("init", brain).err and (tmp_path / "profile").read_text() == "mine\n"
