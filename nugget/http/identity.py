"""Who calls a team's server: a token of Nugget's, an access token of an OpenID provider, or a proxy's header.

`http.auth` chooses one way. Each returns a Caller with a right in each space, or None.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from anyio import to_thread
from starlette.requests import Request

from nugget.app import team
from nugget.config import Environment, HttpSettings
from nugget.errors import NuggetError, UsageError
from nugget.http.models import bearer

_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by a key pair only: with a shared secret the public key could be used to sign."""
_KEYS_TIMEOUT_S = 5
_CLOCK_SKEW_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A caller by name, with the right (`read` or `write`) in each space."""

    name: str
    rights: Mapping[str, str]

    def may(self, space: str, right: str = team.READ) -> bool:
        """Return True if the caller has a right in a space; who may write may read."""
        return self.rights.get(space) in (right, team.WRITE)


Identify = Callable[[Request], Awaitable[Caller | None]]


def identify_by(settings: HttpSettings, environment: Environment) -> Identify:
    """Return the way of `http.auth`. Raises UsageError if its settings are incomplete or its extra is missing."""
    if settings.auth == "token":
        return partial(_by_token, environment)
    if settings.auth == "proxy":
        if not settings.proxies:
            raise UsageError("`http.auth: proxy` needs `http.proxies`.", hint="Name the addresses of your proxies.")
        return partial(_by_proxy, settings, [ipaddress.ip_network(one, strict=False) for one in settings.proxies])
    return _OpenId(settings).identify


async def _by_token(environment: Environment, request: Request) -> Caller | None:
    if (text := bearer(request.headers)) is None:
        return None
    found = await to_thread.run_sync(partial(team.token_of, environment.home, text, now=datetime.now(UTC)))
    return Caller(name=found.identity, rights=found.spaces) if found else None


async def _by_proxy(settings: HttpSettings, trusted: list[Any], request: Request) -> Caller | None:
    """Return the caller that a trusted proxy names; headers from any other address count for nothing."""
    address = ipaddress.ip_address(request.client.host) if request.client else None
    name = request.headers.get(settings.user_header)
    if address is None or not name or not any(address in network for network in trusted):
        return None
    groups = [group.strip() for group in request.headers.get(settings.groups_header, "").split(",")]
    return Caller(name=name, rights=_rights(settings, [name, *groups]))


def _rights(settings: HttpSettings, names: list[str]) -> dict[str, str]:
    """Return the rights that `http.rights` (`GROUP=SPACE:right`) gives to groups and names; the larger one counts."""
    rights: dict[str, str] = {}
    for entry in settings.rights:
        group, _, given = entry.rpartition("=")
        if group in names:
            for space, right in team.parse_rights([given]).items():
                rights[space] = team.WRITE if team.WRITE in (right, rights.get(space)) else right
    return rights


class _OpenId:
    """Checks access tokens of an OpenID provider (JWT) by the keys that it publishes."""

    def __init__(self, settings: HttpSettings) -> None:
        team.require("jwt", "`http.auth: oidc`")
        if not (settings.issuer and settings.audience):
            raise UsageError("`http.auth: oidc` needs `http.issuer` and `http.audience`.")
        parts = urlsplit(settings.issuer)
        if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
            raise UsageError("`http.issuer` must be an https address.")
        self._settings = settings
        self._keys: Any = None

    async def identify(self, request: Request) -> Caller | None:
        """Return the caller of a valid token. Raises NuggetError if the provider's keys cannot be had."""
        text = bearer(request.headers)
        return await to_thread.run_sync(self._check, text) if text else None

    def _check(self, text: str) -> Caller | None:
        import jwt

        settings = self._settings
        try:
            key = self._key_client().get_signing_key_from_jwt(text)
            claims = jwt.decode(
                text, key.key, algorithms=list(_ALGORITHMS), audience=settings.audience, issuer=settings.issuer,
                leeway=_CLOCK_SKEW_S, options={"require": ["exp", "iss", "aud", "sub"]},
            )  # fmt: skip
        except jwt.PyJWKClientConnectionError as error:
            raise NuggetError(f"The keys of {settings.issuer} cannot be had ({error}).") from error
        except (jwt.PyJWTError, ValueError):
            return None
        groups = claims.get(settings.groups_claim) or []
        names = [str(group) for group in groups] if isinstance(groups, list) else str(groups).split()
        # Only what the provider vouches for: people may choose their user name, and an address that nobody checked.
        is_checked = claims.get("email_verified") is True
        name = str(claims["email"] if is_checked and claims.get("email") else claims["sub"])
        return Caller(name=name, rights=_rights(settings, [name, *names]))

    def _key_client(self) -> Any:
        """Return the client for the provider's keys, which caches them and looks again for an unknown key."""
        import jwt

        if self._keys is None:
            self._keys = jwt.PyJWKClient(team.keys_address(self._settings.issuer or ""), timeout=_KEYS_TIMEOUT_S)
        return self._keys
