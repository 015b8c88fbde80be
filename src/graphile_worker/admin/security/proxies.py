"""Reverse proxies: forwarded headers are believed from trusted proxies, and deleted from all others."""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from starlette.types import ASGIApp, Receive, Scope, Send

from ...errors import ConfigError

SECRET_HEADER = b"x-proxy-secret"
HOST_CHECKED = "graphile_worker.host_checked"
"""Key in the scope: the proxy answers for the Host header."""
_FORWARDED = frozenset(
    {
        b"forwarded", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"x-forwarded-prefix",
        SECRET_HEADER,
    }
)  # fmt: skip
_WITH_PORT = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::\d{1,5})?|([0-9.]+):\d{1,5}")
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)+")

Network = IPv4Network | IPv6Network


class BehindProxy:
    """Wraps the dashboard of `graphile-worker admin`.

    A proxy is trusted by its address or by a shared secret. The header that names the user is deleted unless
    it came through one, before anything looks at it.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        trusted: Sequence[str] = (),
        secret: str = "",
        auth_header: str = "",
        root_path: str = "",
        checks_hosts: bool = False,
    ) -> None:
        """`checks_hosts`: the proxy accepts requests for its own names only, so any name is right."""
        self._app = app
        self._trusted = [_network(text) for text in trusted]
        self._secret = secret.encode()
        self._auth_header = auth_header.lower().encode()
        self._root_path = root_path
        self._checks_hosts = checks_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = self._seen(scope)
        await self._app(scope, receive, send)

    def _seen(self, scope: Scope) -> Scope:
        headers: list[tuple[bytes, bytes]] = [(name.lower(), value) for name, value in scope["headers"]]
        kept = [(name, value) for name, value in headers if name not in _FORWARDED]
        scope = {**scope, "headers": kept}
        root = self._root_path
        if not self._is_trusted(scope, headers):
            scope["headers"] = [(name, value) for name, value in kept if name != self._auth_header]
        else:
            given: dict[bytes, str] = {}
            for name, value in headers:
                if name in _FORWARDED:
                    text = value.decode("latin-1")
                    given[name] = f"{given[name]},{text}" if name in given else text
            self._believe(scope, given)
            root = _prefix(given) or root
            scope[HOST_CHECKED] = self._checks_hosts
        if root:
            scope["root_path"] = root
            scope["path"] = root + scope["path"]
        return scope

    def _is_trusted(self, scope: Scope, headers: list[tuple[bytes, bytes]]) -> bool:
        if self._secret:
            given = [value for name, value in headers if name == SECRET_HEADER]
            if len(given) == 1 and hmac.compare_digest(given[0], self._secret):
                return True
        client = scope.get("client")
        return client is not None and self._is_proxy(client[0])

    def _is_proxy(self, address: str) -> bool:
        try:
            found = ip_address(address)
        except ValueError:
            return False
        mapped = getattr(found, "ipv4_mapped", None)
        return any((mapped or found) in network for network in self._trusted)

    def _believe(self, scope: Scope, given: dict[bytes, str]) -> None:
        if (scheme := _last(given.get(b"x-forwarded-proto"))) in ("http", "https"):
            scope["scheme"] = scheme
        if host := _last(given.get(b"x-forwarded-host")):
            others = [(name, value) for name, value in scope["headers"] if name != b"host"]
            scope["headers"] = [*others, (b"host", host.encode("latin-1"))]
        # The nearest address that is no proxy of ours: what is before it, the client may have made up.
        addresses = [part.strip() for part in given.get(b"x-forwarded-for", "").split(",") if part.strip()]
        for text in reversed(addresses):
            address = _address(text)
            if not self._is_proxy(address):
                scope["client"] = (address, 0) if address else scope["client"]
                break


def _address(text: str) -> str:
    """An address without the port that some proxies add; empty if it is none."""
    found = _WITH_PORT.fullmatch(text)
    try:
        return str(ip_address(found[1] or found[2] if found else text))
    except ValueError:
        return ""


def _last(text: str | None) -> str:
    return (text or "").rpartition(",")[2].strip()


def _prefix(given: dict[bytes, str]) -> str:
    prefix = _last(given.get(b"x-forwarded-prefix")).rstrip("/")
    return prefix if _PREFIX.fullmatch(prefix) else ""


def _network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError:
        raise ConfigError(
            f"admin.trusted_proxies: expected an address or a network such as 10.0.0.0/8, got {text!r}"
        ) from None
