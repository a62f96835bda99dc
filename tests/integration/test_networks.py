"""Every client of another server in a company's network: an authority of its own for certificates, and a proxy."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from sessions import write_transcript
from starlette.requests import Request as HttpRequest
from tls import encrypt

from nugget.app import team
from nugget.config import read_environment
from nugget.errors import NuggetError, UsageError
from nugget.http.team import identify_by
from nugget.infra import forges, git, remotes
from nugget.infra.embedding import open_embedder
from nugget.infra.llm import Request, open_extractor
from nugget.settings import Settings

asked: list[str] = []
ENDLESS = "/endless/keys"


class Refusing(BaseHTTPRequestHandler):
    """A server that knows nothing but where an OpenID provider's keys are, and a proxy that lets nothing through."""

    def do_GET(self) -> None:
        """Answer 404."""
        self.rfile.read(int(self.headers["content-length"] or 0))
        asked.append(self.path)
        keys = {"jwks_uri": f"https://{self.headers['host']}{self.path.partition('/.')[0]}/keys"}
        is_known = self.path.endswith("openid-configuration")
        reply = json.dumps(keys if is_known else {"message": "Not Found"}).encode()
        self.send_response(200 if is_known else 403 if self.command == "CONNECT" else 404)
        self.send_header("content-length", str(len(reply) if self.path != ENDLESS else 1 << 40))
        self.end_headers()
        self.wfile.write(reply)
        with suppress(OSError):
            while self.path == ENDLESS:
                self.wfile.write(bytes(1 << 20))

    do_POST = do_CONNECT = do_GET

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


def ask(way: str, url: str, folder: Path) -> object:
    variables = {"ANTHROPIC_API_KEY": "sk-ant-test", "ANTHROPIC_BASE_URL": url, "HOME": str(folder)}
    model = open_extractor(Settings(llm_base_url=f"{url}/v1"), read_environment(variables), way)
    asked = Request(purpose="test", model="m", prompt="x", max_tokens=9, timeout_s=60)
    return model and model.structured(asked, {"type": "object"})


def vectors(url: str, folder: Path) -> object:
    settings = Settings(embedding_model="openai:m", embedding_base_url=url)
    embedder = open_embedder(settings, read_environment({"OPENAI_API_KEY": "sk-x", "HOME": str(folder)}))
    return embedder and embedder.embed_query("x")


def fetch(url: str, folder: Path) -> None:
    git.init(folder)
    git.run(folder, "config", "remote.origin.url", f"{url}/acme/brain.git")
    remotes.fetch(folder, remotes.Remote(name="origin", url=f"{url}/acme/brain.git"), "main")


def send(url: str, folder: Path) -> object:
    write_transcript(folder / "s.jsonl", [("What of retries?", "Retry a payment once.")])
    variables = {"NUGGET_TEAM_TOKEN": "nug_x", "HOME": str(folder)}
    settings = Settings(capture_server=f"{url}/s/acme")
    return team.send_session(folder / "s.jsonl", read_environment(variables), settings)


def log_in(url: str, folder: Path) -> object:
    settings = Settings(http_auth="oidc", http_issuer=url, http_audience="nugget")
    headers = [(b"authorization", b"Bearer eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.e30.e30")]
    request = HttpRequest({"type": "http", "headers": headers})
    return asyncio.run(identify_by(settings, read_environment({"HOME": str(folder)}))(request))  # type: ignore[arg-type]


CLIENTS: dict[str, tuple[Callable[[str, Path], object], str]] = {
    "Claude": (partial(ask, "api"), "HTTP 404"),
    "another model": (partial(ask, "openai"), "HTTP 404"),
    "embeddings": (vectors, "HTTP 404"),
    "GitHub": (lambda url, _: forges.GitHub("a/b", token="t", api_url=url).current_name(), "has no repository a/b"),
    "GitLab": (lambda url, _: forges.GitLab("a/b", token="t", server=url).current_name(), "has no project a/b"),
    "git": (fetch, "there is no such repository"),
    "a team's server": (send, "did not accept the session: HTTP 404"),
    "an OpenID provider": (log_in, r"does not publish `\w+` \(HTTP 404\)"),
}


@pytest.mark.proves("REMOTE-TLS")
@pytest.mark.parametrize("client", CLIENTS)
def test_an_authority_of_ones_own_is_trusted_by_its_file_and_missed_in_one_sentence(
    client, server, tmp_path, monkeypatch
):
    file = encrypt(server, tmp_path)
    url = f"https://localhost:{server.server_address[1]}"
    reach, refused = CLIENTS[client]
    with pytest.raises(NuggetError, match=r"certificate is not trusted.*; SSL_CERT_FILE"):
        reach(url, tmp_path)
    assert asked == []
    monkeypatch.setenv("SSL_CERT_FILE", file)
    with pytest.raises(NuggetError, match=refused):
        reach(url, tmp_path)


@pytest.mark.proves("REMOTE-PROXY")
@pytest.mark.parametrize("client", CLIENTS)
def test_the_proxy_of_the_environment_is_used(client, server, tmp_path, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{server.server_address[1]}")
    with pytest.raises(NuggetError):
        CLIENTS[client][0]("https://api.invalid", tmp_path)
    assert {*asked} == {"api.invalid:443"}


@pytest.mark.proves("TEAM-OIDC")
def test_keys_without_end_are_not_read(server, tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", encrypt(server, tmp_path))
    with pytest.raises(NuggetError, match=f"{ENDLESS} cannot be reached"):
        log_in(f"https://localhost:{server.server_address[1]}/endless", tmp_path)


@pytest.mark.proves("TEAM-OIDC", "TEAM-PROXY")
def test_what_is_no_address_names_neither_a_provider_nor_a_proxy(tmp_path):
    for values in ({"auth": "oidc", "issuer": "https://[", "audience": "a"}, {"auth": "proxy", "proxies": ("x",)}):
        given = Settings(**{f"http_{name}": value for name, value in values.items()})
        with pytest.raises(UsageError, match=r"^`http\.(issuer|proxies)`"):
            identify_by(given, read_environment({"HOME": str(tmp_path)}))


@pytest.mark.proves("TEAM-SESSIONS")
@pytest.mark.parametrize("server", [
    "https://ada:hunter2@host/s/acme", "http://host/s/acme", "http://localhost.host/s/acme", "https://host", "https://[/s/a",
])  # fmt: skip
def test_an_address_with_a_password_or_without_tls_or_space_gets_nothing_and_is_not_shown(server, tmp_path):
    with pytest.raises(NuggetError, match=r"^`capture\.server` is not the address of a space\.$"):
        team.send_session(tmp_path / "s.jsonl", read_environment({}), Settings(capture_server=server))
