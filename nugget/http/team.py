"""Serve a team: `nugget serve --http` with `http.auth`. Each space has its endpoints and MCP below `/s/NAME`.

A space is a brain of the server. A caller who may not read it sees no sign of it. GitHub's webhook updates a space
right after a merge; sessions sent by members enter the capture queue.

`http.auth` chooses how to identify a caller: by a token of Nugget, an access token of an OpenID provider, or the header
of a proxy. Each way gives the caller's name and right in each space, or None.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote

from anyio import to_thread
from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.routing import Mount

from nugget import __version__
from nugget.app import team
from nugget.app.agent_session import AgentSession
from nugget.config import Environment, Settings, import_extra
from nugget.errors import NuggetError, UsageError
from nugget.http.models import Refusal, bearer, json_reply
from nugget.http.routes import add_handlers, make_app, mcp_route
from nugget.mcp import make_server

OPEN_PATHS = ("/healthz", "/readyz", "/hooks/github")
"""Paths without a caller: probes, and the webhook, which is signed."""
_METADATA = "/.well-known/oauth-protected-resource"
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Only signatures by a key pair: if shared secrets were allowed, the public key could be used to sign."""
_CLOCK_SKEW_S = 30


def make_team_app(environment: Environment, settings: Settings, brains: Mapping[str, Path], *, url: str) -> FastAPI:
    """Return the application that serves these brains as spaces. Raises UsageError if `http.auth` is incomplete."""
    prometheus_client: Any = import_extra("prometheus_client", "team", "A team's server", UsageError)
    spaces = {name: AgentSession(flag=path, environment=environment, cwd=path, face="http")
              for name, path in brains.items()}  # fmt: skip
    servers = {name: make_server(session) for name, session in spaces.items()}

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for name, session in spaces.items():
                await stack.enter_async_context(servers[name].session_manager.run())
                Thread(target=session.warm, daemon=True).start()
            yield
            for session in spaces.values():
                session.close()

    app = FastAPI(title="Nugget", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None,
                  openapi_url=None)  # fmt: skip
    add_handlers(app)
    registry = prometheus_client.CollectorRegistry()
    _add_probes(app, environment, spaces, registry)
    _add_spaces(app, environment, brains, spaces)
    metadata = url + _METADATA if settings.http_auth == "oidc" else None
    if metadata:
        app.add_api_route(_METADATA + "/{resource:path}", partial(_metadata, settings, url))
    for name, session in spaces.items():
        space_app = make_app(session)
        space_app.router.routes.append(mcp_route(servers[name]))
        app.router.routes.append(Mount(f"/s/{name}", app=space_app))
    _add_access(app, identify_by(settings, environment), registry, _tracer(environment), spaces.keys(), metadata)
    return app


def _tracer(environment: Environment) -> Any:
    """Return OpenTelemetry's tracer if an exporter is set in the environment, else None."""
    if not environment.variables.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return None
    sdk, export, otlp = (import_extra(name, "team", "OTEL_EXPORTER_OTLP_ENDPOINT", UsageError) for name in (
        "opentelemetry.sdk.trace", "opentelemetry.sdk.trace.export",
        "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    ))  # fmt: skip
    names = "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE", "SSL_CERT_FILE"
    certificates = next(filter(None, map(environment.variables.get, names)), None)
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter(certificate_file=certificates)))
    return provider.get_tracer("nugget")


async def _metadata(settings: Settings, url: str, resource: str) -> Response:
    """Return the metadata of a protected resource (RFC 9728)."""
    return json_reply({
        "resource": f"{url}/{resource}", "authorization_servers": [settings.http_issuer],
        "bearer_methods_supported": ["header"], "resource_name": "Nugget",
    })  # fmt: skip


def _add_access(
    app: FastAPI, identify: Identify, registry: Any, tracer: Any, spaces: Collection[str], metadata: str | None
) -> None:
    """Add middleware that identifies callers, hides spaces they may not read, and counts and logs requests."""
    from prometheus_client import Counter, Histogram

    requests = Counter("nugget_requests", "Requests", ["space", "status"], registry=registry)
    seconds = Histogram("nugget_request_seconds", "Time to the reply", ["space"], registry=registry)

    async def answer(
        request: Request, call_next: Callable[[Request], Awaitable[Response]], space: str, path: str
    ) -> Response:
        try:
            if not (path in OPEN_PATHS or path.startswith(_METADATA)):
                request.state.caller = caller = await identify(request)
                if caller is None:
                    where = f', resource_metadata="{metadata}{quote(path)}"' if metadata else ""
                    raise Refusal(
                        401, "unauthorized", "This server requires a valid token.",
                        hint="Ask whoever runs the server for one.",
                        headers={"www-authenticate": f'Bearer realm="nugget"{where}'},
                    )  # fmt: skip
                if path.startswith("/s/") and space not in caller[1]:
                    hint = "/v1/spaces lists your spaces."
                    raise Refusal(404, "not_found", "There is nothing at this path.", hint=hint)
            request.state.knows_token = True
            return await call_next(request)
        except NuggetError as error:  # the identity provider is unavailable
            return Refusal(503, "no_identity", str(error), headers={"retry-after": "10"}).reply()
        except Refusal as refusal:
            return refusal.reply()

    @app.middleware("http")
    async def authenticate(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        began_ns, started, status, path = time.time_ns(), time.monotonic(), 500, request.url.path
        parts = path.split("/", 3)
        space = parts[2] if path.startswith("/s/") and parts[2] in spaces else ""
        request.state.caller = None
        try:
            reply = await answer(request, call_next, space, path)
            status = reply.status_code
            return reply
        finally:
            took, caller = time.monotonic() - started, request.state.caller
            requests.labels(space, str(status)).inc()
            seconds.labels(space).observe(took)
            line = {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"), "caller": caller and caller[0],
                "space": space, "method": request.method, "status": status, "ms": round(took * 1000),
            }  # fmt: skip
            print(json.dumps(line), file=sys.stderr, flush=True)
            if tracer:
                known = {name: value for name, value in line.items() if value and name != "time"}
                span = tracer.start_span(f"{request.method} {space or 'server'}", attributes=known, start_time=began_ns)
                span.end()


def _add_probes(app: FastAPI, environment: Environment, spaces: Mapping[str, AgentSession], registry: Any) -> None:
    """Add the endpoints for health, readiness and metrics."""
    from prometheus_client import CONTENT_TYPE_LATEST, Gauge, generate_latest

    jobs = Gauge("nugget_capture_jobs", "Jobs in the capture queue", ["state"], registry=registry)
    is_ready = Gauge("nugget_space_ready", "1 if a space answers", ["space"], registry=registry)

    @app.get("/healthz")
    async def health() -> Response:
        """Answer 200 while the process runs."""
        return json_reply({"status": "ok"})

    @app.get("/readyz")
    async def ready() -> Response:
        """Answer 200 once every space has been opened and read."""
        waiting = sum(session.folder is None for session in spaces.values())
        return json_reply({"status": "starting" if waiting else "ready", "waiting": waiting},
                         status_code=503 if waiting else 200)  # fmt: skip

    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        """Return counters for Prometheus, without those of spaces that the caller may not read."""
        states = await to_thread.run_sync(team.queue.count, environment.home)
        for state, number in states.items():
            jobs.labels(state).set(number)
        for name, session in spaces.items():
            is_ready.labels(name).set(session.folder is not None)
        hidden = [f'space="{name}"'.encode() for name in spaces.keys() - request.state.caller[1].keys()]
        shown = (line for line in generate_latest(registry).splitlines(True) if not any(one in line for one in hidden))
        return Response(b"".join(shown), media_type=CONTENT_TYPE_LATEST)


def _add_spaces(
    app: FastAPI, environment: Environment, brains: Mapping[str, Path], spaces: Mapping[str, AgentSession]
) -> None:
    """Add the endpoints that list the spaces, take sessions for them, and follow their remotes."""

    @app.get("/v1/spaces")
    async def list_spaces(request: Request) -> Response:
        """Return the spaces that the caller may read, each with their right and the address of its MCP server."""
        _, rights = request.state.caller
        listed = [{"name": name, "right": rights[name], "mcp": f"/s/{name}/mcp"} for name in spaces if name in rights]
        return json_reply({"spaces": listed})

    @app.post("/v1/sessions", status_code=202)
    async def take_session(request: Request, space: str) -> Response:
        """Receive a session from a member's `nugget capture`, and queue it for a space."""
        _, rights = request.state.caller
        if space not in spaces or space not in rights:
            raise Refusal(404, "not_found", "There is no such space.", hint="/v1/spaces lists your spaces.")
        if rights[space] != team.WRITE:
            raise Refusal(403, "read_only", f"You may read {space}, but not send sessions to it.")
        folder = spaces[space].folder
        if folder is None:
            raise Refusal(503, "starting", f"{space} is still being read.", headers={"retry-after": "10"})
        with tempfile.NamedTemporaryFile(suffix=".gz") as upload:
            async for part in request.stream():
                upload.write(part)
            upload.flush()
            take = partial(team.take_session, environment, folder, Path(upload.name), now=datetime.now(UTC))
            session = await to_thread.run_sync(take)
        return json_reply({"session": session, "space": space}, status_code=202)

    @app.post("/hooks/github")
    async def github(request: Request) -> Response:
        """Follow the remote of a space when GitHub reports a change of its repository."""
        secret, repository = environment.variables.get("NUGGET_WEBHOOK_SECRET", "").encode(), ""
        signature, body = request.headers.get("x-hub-signature-256", ""), await request.body()
        signed = f"sha256={hmac.digest(secret, body, 'sha256').hex()}"
        if not secret or not hmac.compare_digest(signature.encode(), signed.encode()):
            raise Refusal(401, "bad_signature", "The webhook is not signed with NUGGET_WEBHOOK_SECRET.")
        with suppress(ValueError, LookupError, TypeError, RecursionError):
            repository = str(json.loads(body)["repository"]["full_name"])
        names = await to_thread.run_sync(team.spaces_of_repository, environment, brains, repository)
        if not names:
            raise Refusal(404, "unknown_repository", "No space has this repository.")
        if not await to_thread.run_sync(team.note_delivery, environment.home, signature):  # its id is not signed
            raise Refusal(409, "delivered_before", "This delivery was handled before.")
        for name in names:
            Thread(target=spaces[name].follow, name=f"nugget-follow-{name}", daemon=True).start()
        return json_reply({"followed": names}, status_code=202)


Caller = tuple[str, Mapping[str, str]]
"""The name of a caller, with the right (`read` or `write`) in each space."""
Identify = Callable[[Request], Awaitable[Caller | None]]


def identify_by(settings: Settings, environment: Environment) -> Identify:
    """Return the function that identifies callers by `http.auth`. Raises UsageError if it cannot be used."""
    if settings.http_auth == "token":
        return partial(_by_bearer, partial(_known_token, environment))
    if settings.http_auth == "proxy":
        if not settings.http_proxies:
            raise UsageError("`http.auth: proxy` needs `http.proxies`.", hint="Name the addresses of your proxies.")
        try:
            trusted = [ipaddress.ip_network(one, strict=False) for one in settings.http_proxies]
        except ValueError as error:
            raise UsageError(f"`http.proxies`: {error}.") from None
        return partial(_by_proxy, settings, trusted)
    import_extra("jwt", "team", "`http.auth: oidc`", UsageError)
    if not (settings.http_issuer and settings.http_audience):
        raise UsageError("`http.auth: oidc` needs `http.issuer` and `http.audience`.")
    if not team.is_private(settings.http_issuer):
        raise UsageError("`http.issuer` must be an https address.")
    return partial(_by_bearer, partial(_checked_token, settings))


async def _by_bearer(check: Callable[[str], Caller | None], request: Request) -> Caller | None:
    """Return the caller of a valid bearer token. Raises NuggetError if the provider's keys are unavailable."""
    text = bearer(request.headers)
    return await to_thread.run_sync(check, text) if text else None


def _known_token(environment: Environment, text: str) -> Caller | None:
    found = team.token_of(environment.home, text, now=datetime.now(UTC))
    return (found.identity, found.spaces) if found else None


async def _by_proxy(settings: Settings, trusted: list[Any], request: Request) -> Caller | None:
    """Return the caller named by a trusted proxy; none if a header came twice, since one may be the client's own."""
    address = ipaddress.ip_address(request.client.host) if request.client else None
    names, groups = map(request.headers.getlist, (settings.http_user_header, settings.http_groups_header))
    is_trusted = address is not None and any(address in network for network in trusted)
    if not is_trusted or len(names) != 1 or not names[0] or len(groups) > 1:
        return None
    return names[0], _rights(settings, [names[0], *(group.strip() for group in "".join(groups).split(","))])


def _rights(settings: Settings, names: list[str]) -> dict[str, str]:
    """Return the rights that `http.rights` (`GROUP=SPACE:right`) gives to these groups and names; write wins."""
    rights: dict[str, str] = {}
    for entry in settings.http_rights:
        group, _, given = entry.rpartition("=")
        if group in names:
            for space, right in team.parse_rights([given]).items():
                rights[space] = team.WRITE if team.WRITE in (right, rights.get(space)) else right
    return rights


def _checked_token(settings: Settings, text: str) -> Caller | None:
    import jwt

    try:
        key = _provider_keys(settings.http_issuer or "").get_signing_key_from_jwt(text)
        claims = jwt.decode(
            text, key.key, algorithms=list(_ALGORITHMS), audience=settings.http_audience, issuer=settings.http_issuer,
            leeway=_CLOCK_SKEW_S, options={"require": ["exp", "iss", "aud", "sub"]},
        )  # fmt: skip
    except (jwt.PyJWTError, ValueError):
        return None
    groups = claims.get(settings.http_groups_claim) or ""
    names = [*map(str, groups)] if isinstance(groups, list) else str(groups).split()
    # Only claims that the provider vouches for: people may choose their user name or an unverified address.
    is_checked = claims.get("email_verified") is True
    name = str(claims["email"] if is_checked and claims.get("email") else claims["sub"])
    return name, _rights(settings, [name, *names])


@cache
def _provider_keys(issuer: str) -> Any:
    """Return a client that caches a provider's keys and fetches them again for an unknown key."""
    import jwt

    found = team.published(f"{issuer.rstrip('/')}/.well-known/openid-configuration", "jwks_uri")
    client: Any = jwt.PyJWKClient(str(found["jwks_uri"]))
    client.fetch_data = partial(team.published, client.uri, "keys")  # its own reads a reply without end
    return client
