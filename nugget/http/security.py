"""Who may ask: the address the server listens on, the Host and Origin of a request, its token, its path.

A web page that a person visits can send requests to their loopback, and can make a name of its own point there (DNS
rebinding). So a Host has to be one of ours, an Origin has to be our own, and there is no CORS.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from nugget.errors import UsageError
from nugget.http.replies import Refusal

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 5033
SHORTEST_TOKEN = 16
OPEN_PATHS = ("/healthz",)
"""Answered without a token, with less in it."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?\Z")
_ENCODED = re.compile(r"%(?:2f|5c|00|0[1-9a-f]|1[0-9a-f]|7f)", re.IGNORECASE)
_PORT = re.compile(r"[0-9]{1,5}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the server listens; port 0 is any free one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    @property
    def url(self) -> str:
        """The address as a client writes it."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The rules for one server. `any_address` admits every IP address as a Host: no name can point to one."""

    hosts: frozenset[str]
    any_address: bool = False
    token: str | None = None

    def check(self, headers: Mapping[str, str], path: str, *, raw_path: bytes) -> bool:
        """Let a request through; False where it is let through to an open path without its token.

        Header names in lower case. Raises Refusal.
        """
        self._check_host(headers.get("host"))
        self._check_origin(headers)
        check_path(raw_path)
        if self.token is None or self._has_token(headers.get("authorization")):
            return True
        if path in OPEN_PATHS:
            return False
        raise Refusal(
            401, "unauthorized", "This server asks for a bearer token, and this request has none or a wrong one.",
            hint="Send `Authorization: Bearer` with the token of NUGGET_HTTP_TOKEN.",
            headers={"www-authenticate": 'Bearer realm="nugget"'},
        )  # fmt: skip

    def _check_host(self, host: str | None) -> None:
        name = _host_name(host)
        if name is None or not self._knows(name):
            raise Refusal(
                421, "wrong_host", "The Host of this request is none that this server answers to.",
                hint="Call it by localhost or by its address; `http.allowed_hosts` adds names.",
            )  # fmt: skip

    def _knows(self, name: str) -> bool:
        if name in self.hosts or is_loopback(name):
            return True
        return self.any_address and _ip(name) is not None

    def _check_origin(self, headers: Mapping[str, str]) -> None:
        origin = headers.get("origin")
        own = origin is None or origin.lower() in _own_origins(headers.get("host", ""))
        if not own or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise Refusal(
                403, "foreign_origin", "Web pages of another origin may not call this server.",
                hint="Call it from a program, not from a browser.",
            )  # fmt: skip

    def _has_token(self, header: str | None) -> bool:
        scheme, _, given = (header or "").partition(" ")
        expected = (self.token or "").encode()
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode("utf-8", "replace"), expected)


def access_for(address: Address, *, token: str | None, allowed_hosts: Sequence[str]) -> Access:
    """The rules for an address. Raises UsageError where it can be reached from elsewhere and there is no token."""
    token = token.strip() if token else None
    if not address.is_loopback and not token:
        raise UsageError(
            f"{address.host} can be reached from other machines, so a token is needed.",
            hint="Set NUGGET_HTTP_TOKEN to a long random text, or listen on 127.0.0.1.",
        )
    if token and (len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token):
        raise UsageError(
            f"NUGGET_HTTP_TOKEN has to be {SHORTEST_TOKEN} or more plain characters without spaces.",
            hint="Make one with: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
    named = {host.strip().lower().rstrip(".") for host in allowed_hosts}
    ip = _ip(address.host)
    wildcard = ip is not None and ip.is_unspecified
    own = {socket.gethostname().lower()} if wildcard else {address.host.lower()}
    return Access(hosts=frozenset(named | own), any_address=wildcard, token=token)


def parse_address(text: str | None) -> Address:
    """`HOST:PORT`, `HOST`, `PORT` or `[IPV6]:PORT`. Raises UsageError."""
    text = (text or "").strip()
    if not text:
        return Address(host=DEFAULT_HOST, port=DEFAULT_PORT)
    if _ip(text) is not None:
        return Address(host=text, port=DEFAULT_PORT)
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = ("", text) if text.isdigit() else (text, str(DEFAULT_PORT))
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not _is_port(port) or (bare and _ip(bare) is None and not _NAME.match(bare)):
        raise UsageError(f"{text!r} is no address.", hint=f"Write HOST:PORT, such as {DEFAULT_HOST}:{DEFAULT_PORT}.")
    return Address(host=bare or DEFAULT_HOST, port=int(port))


def is_loopback(host: str) -> bool:
    """Whether a name or an address means this machine alone."""
    ip = _ip(host)
    if ip is None:
        return host.lower().rstrip(".") == "localhost"
    mapped = getattr(ip, "ipv4_mapped", None)
    return (mapped or ip).is_loopback


def check_path(raw_path: bytes) -> None:
    """Refuse a path that could mean another one once it is decoded. Raises Refusal."""
    path = raw_path.decode("latin-1")
    parts = path.replace("%2e", ".").replace("%2E", ".").split("/")
    if _ENCODED.search(path) or "\\" in path or any(part in (".", "..") for part in parts):
        raise Refusal(
            400, "bad_path", "The path holds `..`, an encoded slash or a control character.",
            hint="Write an id as it is, its slashes included: /v1/units/pattern/retry-once.",
        )  # fmt: skip


def _host_name(host: str | None) -> str | None:
    """The name in a Host header, without its port; None where there is none, or it is malformed."""
    if not host or any(char in host for char in "@/\\?# \t"):
        return None
    if host.startswith("["):
        inner, bracket, rest = host[1:].partition("]")
        sound = bracket and (not rest or (rest[0] == ":" and _is_port(rest[1:])))
        return inner if sound and _ip(inner) is not None else None
    name, colon, port = host.partition(":")
    if colon and not _is_port(port):
        return None
    return name.lower().rstrip(".") if _NAME.match(name) else None


def _is_port(text: str) -> bool:
    return _PORT.match(text) is not None and int(text) <= 65535


def _own_origins(host: str) -> set[str]:
    """The origins of a page that this server itself would have given out."""
    host = host.lower()
    split = urlsplit(f"//{host}")
    with_port = host if split.port else f"{host}:80"
    return {f"http://{host}", f"http://{with_port}", f"https://{host}"}


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
