"""Hosts, origins, headers and cookies: what belongs to us, and what a page of another site may not do.

A page on another name that resolves to us must not reach us, so the Host header may have known names only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from ...errors import ConfigError
from ..answers import Problem

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
DEFAULT_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")


def split_host(text: str) -> tuple[str, int | None] | None:
    """The name in lower case and the port of a Host header; None if it is not one."""
    found = _HOST.fullmatch(text)
    if found is None:
        return None
    port = found["port"]
    return found["name"].lower().rstrip("."), int(port) if port else None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class HostRule:
    """Names with a port accept that port only; names without one accept every port. `*` accepts all."""

    names: frozenset[tuple[str, int | None]] | None

    @classmethod
    def of(cls, names: Iterable[str] | None) -> HostRule:
        """A rule of the names as people write them; None accepts every name."""
        if names is None:
            return cls(None)
        given = list(names)
        if "*" in given:
            return cls(None)
        found = [split_host(name) for name in given]
        return cls(frozenset(each for each in found if each is not None))

    @classmethod
    def of_loopback(cls, port: int, names: Iterable[str] = ()) -> HostRule:
        """For a server on loopback: its own names with its port, and the names given."""
        return cls.of([*(f"{name}:{port}" for name in LOOPBACK_NAMES), *names])

    def accepts(self, header: str | None, scheme: str = "http") -> bool:
        """Whether a request with this Host header is meant for us."""
        if self.names is None:
            return True
        found = split_host(header) if header else None
        if found is None:
            return False
        name, port = found
        port = port or DEFAULT_PORTS.get(scheme)
        return (name, None) in self.names or (name, port) in self.names


# -- headers and origins ------------------------------------------------------------------------------------

_FIXED = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_ORIGIN = re.compile(r"'self'|https?://(\*\.)?[A-Za-z0-9.-]+(:[0-9]{1,5})?")


def check_frame_ancestors(origins: Sequence[str]) -> None:
    """Refuse what would end the directive early or mean something else."""
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise ConfigError(
                f"frame_ancestors: expected 'self' or origins such as https://example.com, got {origin!r}"
            )


def answer_headers(nonce: str, frame_ancestors: Sequence[str] = ()) -> dict[str, str]:
    """The headers of every answer. Scripts need the nonce: the origin may serve files of other people."""
    headers = {
        "Content-Security-Policy": (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self'; img-src 'self'; "
            "connect-src 'self'; form-action 'self'; base-uri 'none'; "
            f"frame-ancestors {' '.join(frame_ancestors) or chr(39) + 'none' + chr(39)}"
        ),
        **_FIXED,
        "Cache-Control": "no-store",
    }
    if not frame_ancestors:
        headers["X-Frame-Options"] = "DENY"
    return headers


def check_origin(headers: Mapping[str, str], scheme: str, *, is_token: bool, is_get: bool = False) -> None:
    """Refuse a request that a page of another site may have sent with this person's cookie.

    A request with a bearer token cannot be one: browsers do not add it by themselves. A GET may also come
    from the address bar; where browsers do not say where it comes from, as without HTTPS, its referrer does.
    """
    if is_token:
        return
    site = headers.get("sec-fetch-site")
    if site is not None:
        allowed = site == "same-origin" or (is_get and site == "none")
    else:
        origin = headers.get("origin") or (headers.get("referer") if is_get else None)
        allowed = is_own_origin(origin, headers.get("host"), scheme)
    if not allowed:
        raise Problem(
            403, "The request did not come from the dashboard",
            "It must come from one of its own pages: go there, and try again. Programs use the API with a "
            "bearer token.",
        )  # fmt: skip


def is_own_origin(origin: str | None, host: str | None, scheme: str) -> bool:
    """Whether the origin is ours. TLS may end at a proxy, so https counts as ours where we see http."""
    if origin is None or host is None:
        return False
    try:
        parts = urlsplit(origin)
        theirs = (parts.hostname or "", parts.port or DEFAULT_PORTS.get(parts.scheme))
    except ValueError:
        return False
    ours = split_host(host)
    if (
        ours is None
        or parts.scheme not in ("http", "https")
        or (scheme == "https") > (parts.scheme == "https")
    ):
        return False
    return theirs == (ours[0].strip("[]"), ours[1] or DEFAULT_PORTS[parts.scheme])


# -- cookies -----------------------------------------------------------------------------------------------


def cookie_name(request: Request, what: str) -> str:
    """Cookies know no ports, so two dashboards on one machine need two names."""
    host = split_host(request.headers.get("host", ""))
    port = f"_{host[1]}" if host is not None and host[1] is not None else ""
    prefix = "__Secure-" if request.scope.get("scheme", "http") == "https" else ""
    return f"{prefix}graphile_worker_{what}{port}"


def set_cookie(request: Request, response: Response, what: str, value: str, *, max_age: int) -> None:
    """Set a cookie that scripts cannot read and other sites cannot send; no value deletes it."""
    response.set_cookie(
        cookie_name(request, what), value, max_age=max_age if value else 0, path=cookie_path(request),
        secure=request.scope.get("scheme", "http") == "https", httponly=True, samesite="strict",
    )  # fmt: skip


def cookie_path(request: Request) -> str:
    """The root of the dashboard, not of one of its databases."""
    root: str = request.scope.get("graphile_worker.root", request.scope.get("root_path", ""))
    return root or "/"
