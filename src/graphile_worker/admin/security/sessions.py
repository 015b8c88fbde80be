"""Sessions: a signed cookie with the user, a time limit and a fingerprint of the credential.

Nothing is stored on the server but the sessions that were signed out, until they would have ended: in memory,
and in the audit if the secret is fixed, so that they stay signed out after a restart.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from binascii import Error as Base64Error
from collections import OrderedDict
from collections.abc import Iterable
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ...values.clock import Clock
from .origins import cookie_name, set_cookie
from .passwords import decoded, encoded

LASTS = 12 * 3600
MAX_ENDED = 10_000
PURPOSE = "session"


class SignInSession(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the cookie."""

    id: str
    user: str
    how: str
    issued: int
    expires: int
    fingerprint: str
    """Of the credential and the role: when either changes, the session ends."""


class SignInSessions:
    """Begins, reads and ends sessions."""

    def __init__(self, signer: Signer, clock: Clock) -> None:
        self._signer = signer
        self._clock = clock
        self._ended: OrderedDict[str, int] = OrderedDict()
        self.began = int(clock.now().timestamp())
        """When this process began: it knows which sessions were signed out since."""

    def begin(self, user: str, how: str, fingerprint: str) -> SignInSession:
        now = int(self._clock.now().timestamp())
        return SignInSession(
            id=secrets.token_urlsafe(12), user=user, how=how, issued=now, expires=now + LASTS,
            fingerprint=fingerprint,
        )  # fmt: skip

    def read(self, request: Request) -> SignInSession | None:
        """The session of the request's cookie, if it is valid; its user may be gone."""
        text = request.cookies.get(cookie_name(request, "session"))
        session = self._signer.read(PURPOSE, text, SignInSession) if text else None
        if session is None or session.id in self._ended:
            return None
        now = self._clock.now().timestamp()
        return session if session.issued - 60 <= now < session.expires else None

    def end(self, session: SignInSession) -> None:
        """Sign out: the cookie is worth nothing from now on, wherever a copy of it is."""
        now = self._clock.now().timestamp()
        while self._ended and next(iter(self._ended.values())) < now:
            self._ended.popitem(last=False)
        self._remember(session.id, session.expires)

    def end_earlier(self, ids: Iterable[str]) -> None:
        """Sessions that were signed out before this process began."""
        for each in ids:
            self._remember(each, self.began + LASTS)

    def _remember(self, session_id: str, expires: int) -> None:
        self._ended[session_id] = expires
        while len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)

    def set_cookie(self, request: Request, response: Response, session: SignInSession) -> None:
        set_cookie(request, response, "session", self._signer.sign(PURPOSE, session), max_age=LASTS)


# -- signatures ---------------------------------------------------------------------------------------------

T = TypeVar("T")

MAX_SIGNED = 4096
"""Characters of a signed value that are looked at."""


class Signer:
    """Signs with HMAC-SHA-256. Each purpose has a key of its own, so a notice cannot serve as a session."""

    def __init__(self, secret: str = "") -> None:
        """A random key is made if there is no secret."""
        self._key = hashlib.sha256(secret.encode()).digest() if secret else secrets.token_bytes(32)

    def sign(self, purpose: str, value: object) -> str:
        """The value as text for a cookie."""
        content = encoded(msgspec.json.encode(value))
        return f"{content}.{self._mac(purpose, content)}"

    def read(self, purpose: str, text: str, type: type[T]) -> T | None:
        """The value that was signed for this purpose; None for anything else."""
        content, dot, mac = text.rpartition(".")
        if not dot or len(text) > MAX_SIGNED or not text.isascii():
            return None
        if not hmac.compare_digest(mac, self._mac(purpose, content)):
            return None
        try:
            return msgspec.json.decode(decoded(content), type=type)
        except (Base64Error, msgspec.DecodeError, ValueError):
            return None

    def fingerprint(self, *parts: str) -> str:
        """A short text that changes when one of the parts does, and tells nothing about them."""
        return self._mac("fingerprint", "\0".join(parts))[:22]

    def _mac(self, purpose: str, content: str) -> str:
        key = hmac.new(self._key, purpose.encode(), hashlib.sha256).digest()
        mac = hmac.new(key, content.encode(), hashlib.sha256).digest()
        return encoded(mac)
