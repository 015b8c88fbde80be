"""What protects every request: the headers of answers, and the origin of requests that change something."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from ..errors import ConfigError
from .answers import Problem
from .hosts import DEFAULT_PORTS, split_host

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


def check_origin(headers: Mapping[str, str], scheme: str, *, is_token: bool) -> None:
    """Refuse a request that a page of another site may have sent with this person's cookie.

    A request with a bearer token cannot be one: browsers do not add it by themselves.
    """
    if is_token:
        return
    site = headers.get("sec-fetch-site")
    if site is not None:
        allowed = site == "same-origin"
    else:
        allowed = is_own_origin(headers.get("origin"), headers.get("host"), scheme)
    if not allowed:
        raise Problem(
            403, "The request did not come from the dashboard",
            "It would change something, so it must come from one of its own pages. Programs use the API with "
            "a bearer token.",
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
