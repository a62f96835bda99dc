"""GitHub, GitLab and remotes on loopback: the real clients and the real git, and where the token goes."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import loopback_gitlab
import pytest
from forge_contract import Contract, HeldServer
from knowledge_files import commit
from loopback_anthropic import AnthropicServer
from loopback_anthropic import status as refusal
from loopback_github import NAME, OWNER, TOKEN, GitHubServer
from loopback_gitlab import GitLabServer
from programs import program
from publishing_stage import LOCKS, RETRY, Place, laid_out
from sessions import NOW

from nugget.capture import publish as publishing
from nugget.capture import review
from nugget.capture.review import Decision
from nugget.config import read_environment
from nugget.errors import ForgeError, GitError
from nugget.infra import forges, git, remotes
from nugget.infra.forges import GitHub, GitLab
from nugget.infra.remotes import find_token, may_see_token, repository_name
from nugget.settings import Settings

BRANCH = "nugget/session-20260301-120000-0a1b2c3d"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitHubServer]:
    with GitHubServer(tmp_path / "github") as running:
        running.commit("main", {"README.md": "hello\n"})
        running.git("update-ref", f"refs/heads/{BRANCH}", "refs/heads/main")
        running.commit(BRANCH, {"domains/coding/a.md": "a\n"})
        yield running


def connect(server: GitHubServer) -> GitHub:
    return GitHub(f"{OWNER}/{NAME}", token=TOKEN, api_url=server.api_url)


def forge_of(server: HeldServer, **changed: str) -> forges.Forge:
    remote = remotes.Remote(name="origin", url=server.url)
    target = remotes.find_target(remote, read_environment(server.client_variables | changed))
    assert isinstance(target, remotes.Target)
    return target.open(target.name)


@pytest.mark.proves("FORGE-DESCRIBED", "GITLAB", "GITHUB-SENTENCE")
@pytest.mark.parametrize("kind", [GitHubServer, GitLabServer])
def test_all_that_is_asked_of_a_forge_fits_its_description(kind, tmp_path):
    with kind(tmp_path) as server:
        server.commit("main", {"README.md": "hello\n"})
        server.git("update-ref", f"refs/heads/{BRANCH}", "refs/heads/main")
        server.commit(BRANCH, {"domains/coding/a.md": "a\n"})
        forge, wanted = forge_of(server), {"base": "main", "title": "T", "body": "B"}
        made = forge.open_pull(BRANCH, **wanted)
        forge.edit_pull(made.number, title="U", body="C")
        forge.label(made.number, ["one", "two"])
        edited = replace(made, title="U", body="C")
        assert forge.open_pull(BRANCH, **wanted) == forge.pull(made.number) == edited
        assert forge.close_pull(made.number, comment="No.").state == "closed"
        again = forge.open_pull(BRANCH, **wanted)
        with pytest.raises(ForgeError, match=r"cannot be merged now.*(Head branch was modified|SHA does not match)"):
            forge.merge_pull(again.number, head="0" * 40)
        assert forge.merge_pull(again.number, head=again.head) == server.head("main")
        assert forge.current_name() == forge.name
        with pytest.raises(ForgeError, match="does not accept the token"):
            forge_of(server, GITHUB_TOKEN="wrong", GITLAB_TOKEN="wrong").current_name()


PULLS, MERGES = "/repos/acme/brain/pulls", "/api/v4/projects/acme%2Fbrain/merge_requests"
ASKED = {"head": "b", "base": "main", "title": "T"}


@pytest.mark.proves("FORGE-DESCRIBED")
@pytest.mark.parametrize(
    ("file", "method", "address", "body", "reply", "breach"),
    [
        ("github.json", "GET", f"{PULLS}/1/nothing", None, None, "Path not found"),
        ("github.json", "DELETE", f"{PULLS}/1", None, None, "Operation delete not found"),
        ("github.json", "GET", f"{PULLS}?branch=b", None, None, "unknown parameters {'branch'}"),
        ("github.json", "POST", PULLS, {**ASKED, "labels": []}, None, "'labels' was unexpected"),
        ("github.json", "POST", PULLS, ASKED, (201, {"number": 1}), "'html_url' is a required property"),
        ("github.json", "GET", f"{PULLS}/1", None, (418, {}), "418"),
        ("gitlab.yaml", "PUT", f"{MERGES}/1", {"add_labels": "a,b"}, None, "'a,b' is not of type 'array'"),
        ("gitlab.yaml", "PUT", f"{MERGES}/1/merge?sha=0", None, None, "unknown parameters {'sha'}"),
        ("gitlab.yaml", "GET", MERGES, None, (200, [{"iid": 1}]), "'id' is a required property"),
    ],
)
def test_what_a_description_does_not_allow_is_a_breach(file, method, address, body, reply, breach):
    contract = Contract(file)
    contract.check(method, address, json.dumps(body).encode() if body else b"", reply)
    (found,) = contract.breaches
    assert breach in found


def test_only_a_remote_on_github_has_a_name_there():
    for url in ("https://x:secret@github.com/a/b.c/", "git@github.com:a/b.c.git", "ssh://git@ssh.github.com:443/a/b.c"):
        assert repository_name(url, api_url=None) == "a/b.c"
    for url in ("https://github.com.evil.example/a/b", "https://evil.example/github.com/a", "/srv/github.com/a/b"):
        assert repository_name(url, api_url=None) is None


@pytest.mark.proves("GITHUB-TOKEN")
def test_a_token_travels_encrypted_or_to_the_api_server_itself():
    assert may_see_token("https://github.com/acme/brain", read_environment({}))
    assert not may_see_token("http://github.com/acme/brain", read_environment({}))
    assert not may_see_token("ssh://git@github.com/acme/brain", read_environment({}))
    own = read_environment({"GITHUB_API_URL": "http://127.0.0.1:80/api/v3"})
    assert may_see_token("http://127.0.0.1:80/a/b", own) and not may_see_token("http://127.0.0.1:81/a/b", own)


@pytest.mark.proves("GITHUB-TOKEN")
def test_the_token_is_that_of_the_environment_else_of_gh(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert find_token(read_environment({"PATH": str(tmp_path)})) is None
    program(tmp_path / "gh", '[ "$*" = "auth token --hostname github.com" ] && echo gho_from_gh')
    assert find_token(read_environment({"PATH": str(tmp_path)})) == "gho_from_gh"
    assert find_token(read_environment({"PATH": str(tmp_path), "GITHUB_TOKEN": "ghp_mine"})) == "ghp_mine"
    assert "ghp_mine" not in repr(read_environment({"GITHUB_TOKEN": "ghp_mine"}))


@pytest.mark.proves("GITHUB-WAITS")
def test_a_rate_limit_is_waited_for_as_long_as_github_asks(server):
    server.fail(403, message="You have exceeded a secondary rate limit.", headers={"Retry-After": "1"})
    server.fail(429, message="too many", headers={"Retry-After": "1"})
    server.fail(502)
    started = time.monotonic()
    made = connect(server).open_pull(BRANCH, base="main", title="T", body="B")
    assert time.monotonic() - started >= 2
    assert made.state == "open" and len(server.pulls) == 1
    server.fail(429, message="too many", headers={"Retry-After": "3600"})
    with pytest.raises(ForgeError, match="rate limit is used up for another 3600 s"):
        connect(server).pull(1)


@pytest.mark.proves("GITHUB-SENTENCE", "GITHUB-TOKEN")
def test_every_refusal_is_one_sentence_without_the_token(server):
    cases = [
        (403, f"not for {TOKEN} \x1b[31m", "may not do that in acme/brain"),
        (422, "Validation Failed", "refused with 422: Validation Failed"),
    ]
    for status, message, said in cases:
        repository = connect(server)
        server.fail(status, message=message)
        with pytest.raises(ForgeError, match=said) as failure:
            repository.find_pull(BRANCH)
        assert TOKEN not in str(failure.value) and str(failure.value).isprintable()
    server.fail(500, times=4, message="oops")
    with pytest.raises(ForgeError, match="an internal error"):
        connect(server).find_pull(BRANCH)
    assert connect(server).find_pull(BRANCH) is None, "four tries were made"


@pytest.mark.proves("GITHUB-TOKEN")
@pytest.mark.parametrize("status", [301, 307])
def test_the_token_follows_no_redirect_to_another_host(status):
    with AnthropicServer() as named, AnthropicServer(default=lambda request: refusal(404)) as elsewhere:
        there = elsewhere.url.replace("127.0.0.1", "localhost")
        named.default = lambda request: refusal(status, headers={"location": there})
        for forge in (GitHub("a/b", token=TOKEN, api_url=named.url), GitLab("a/b", token=TOKEN, server=named.url)):
            with pytest.raises(ForgeError):
                forge.open_pull(BRANCH, base="main", title="T", body="B")
        assert named.requests and TOKEN not in str(elsewhere.requests)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A brain and the bare repository that is its origin."""
    brain, bare = tmp_path / "brain", tmp_path / "bare.git"
    brain.mkdir()
    git.init(brain)
    (brain / "a.md").write_text("a\n")
    commit(brain, ["a.md"], "First")
    subprocess.run(["git", "init", "-q", "--bare", "--initial-branch=main", str(bare)], check=True)
    git.run(brain, "remote", "add", "origin", bare.as_uri())
    return brain, bare


def remote_of(brain: Path) -> remotes.Remote:
    found = remotes.find_remote(brain)
    assert found is not None
    return found


@pytest.mark.proves("REMOTE-CLEAN")
def test_an_inherited_repository_hooks_and_prompts_have_no_effect(pair, tmp_path, monkeypatch):
    brain, _ = pair
    program(brain / ".git" / "hooks" / "pre-push", f"touch {tmp_path}/hooked\nexit 1")
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_QUARANTINE_PATH"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'broken")
    assert remotes.push(brain, remote_of(brain), str(git.head(brain)), branch="main")
    remotes.fetch(brain, remote_of(brain), "main")
    assert not (tmp_path / "hooked").exists() and not (tmp_path / "elsewhere").exists()


@pytest.mark.proves("GITHUB-TOKEN")
def test_the_token_is_a_header_for_one_address_and_stands_nowhere_else(pair, tmp_path, monkeypatch):
    brain, _ = pair
    seen = tmp_path / "arguments"
    shim = program(tmp_path / "bin" / "git", f'echo "$@" >> {seen}\nexec {shutil.which("git")} "$@"')
    monkeypatch.setenv("PATH", str(shim.parent), prepend=os.pathsep)
    with GitHubServer(tmp_path / "github") as server:
        url = server.url.replace("://", "://me:hunter2@")
        git.run(brain, "remote", "set-url", "origin", server.url)
        remote = remotes.Remote(name="origin", url=server.url, token=TOKEN)
        assert remotes.push(brain, remote, str(git.head(brain)), branch="main")
        assert {request.token for request in server.requests} == {TOKEN}
        git.run(brain, "remote", "set-url", "origin", url)
        with pytest.raises(GitError) as failure:
            remotes.push(brain, remotes.Remote(name="origin", url=url, token=None), str(git.head(brain)), branch="x")
    said = f"{failure.value} {failure.value.hint}"
    assert "does not accept" in said and "hunter2" not in said and TOKEN not in said
    assert "push" in seen.read_text() and TOKEN not in seen.read_text()
    assert TOKEN not in (brain / ".git" / "config").read_text()


@pytest.mark.proves("GITHUB-TOKEN")
def test_the_token_follows_no_redirect(pair, tmp_path):
    brain, _ = pair
    with GitHubServer(tmp_path / "named") as named, GitHubServer(tmp_path / "elsewhere") as elsewhere:
        elsewhere.commit("main", {"README.md": "hello\n"})
        there = elsewhere.url.replace("127.0.0.1", "localhost")
        git.run(brain, "remote", "set-url", "origin", named.url)
        remote = replace(remote_of(brain), token=TOKEN)
        for service, ask in (
            ("git-upload-pack", lambda: remotes.fetch(brain, remote, "main")),
            ("git-receive-pack", lambda: remotes.push(brain, remote, str(git.head(brain)), branch="main")),
        ):
            named.fail(301, headers={"Location": f"{there}/info/refs?service={service}"})
            with pytest.raises(GitError, match="redirects to another address"):
                ask()
        assert elsewhere.requests == []


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with laid_out(tmp_path, monkeypatch, on=GitLabServer) as ready:
        yield ready


@pytest.mark.proves("GITLAB")
def test_a_proposal_is_opened_once_and_what_is_merged_there_comes_here(stage):
    branch = stage.propose(RETRY)
    (opened,) = stage.publish().publications
    assert (opened.state, opened.number) == ("open", 1) and (opened.url or "").endswith("/-/merge_requests/1")
    assert stage.publish().publications == ()
    merged = stage.server.merge(1)
    done = stage.follow()
    assert done.problems == () and done.commit == merged == git.head(stage.brain)
    assert [one.state for one in done.changed] == ["settled"] and review.proposals(stage.brain) == []
    assert git.resolve(stage.brain, f"refs/heads/{branch}") is None


@pytest.mark.proves("GITLAB")
def test_accepting_merges_the_request_and_rejecting_closes_it(stage):
    stage.propose(RETRY)
    stage.publish()
    stage.server.refusal = "405 Method Not Allowed"
    with pytest.raises(ForgeError, match="cannot be merged now") as refused:
        stage.accept()
    assert "/-/merge_requests/1" in (refused.value.hint or "") and len(review.proposals(stage.brain)) == 1
    stage.server.refusal = ""
    assert stage.accept().pending is None
    assert git.head(stage.brain) == stage.server.head("main") and stage.server.merges[0]["state"] == "merged"
    stage.propose(LOCKS, name="t")
    stage.publish()
    stage.decide(Decision(reject=None))
    closed = publishing.close_pull_requests(stage.brain, environment=stage.environment, settings=Settings(), now=NOW)
    assert [one.state for one in closed.publications] == ["settled"]
    assert stage.server.merges[1]["state"] == "closed" and "Turned down" in stage.server.notes[0]


@pytest.mark.proves("GITLAB", "GITHUB-TOKEN")
def test_a_token_goes_to_its_own_forge_alone(stage):
    environment = replace(stage.environment, variables={**stage.environment.variables, "GITHUB_TOKEN": "ghp_x"})
    for url, token in (
        (stage.server.url, loopback_gitlab.TOKEN), ("https://github.com/acme/brain", "ghp_x"),
        ("https://gitlab.com/acme/brain", None), ("https://evil.example/acme/brain", None),
    ):  # fmt: skip
        found = remotes.find_target(remotes.Remote(name="origin", url=url), environment)
        assert (found.remote.token if isinstance(found, remotes.Target) else None) == token
