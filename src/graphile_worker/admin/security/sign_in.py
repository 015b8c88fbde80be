"""SignIn: the dashboard's own way to know people, by password, one-time link, bearer token or proxy header.

It is an `authorize` like any other, and brings the pages `/login` and `/logout`.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from ipaddress import IPv6Address, ip_address

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ...errors import ConfigError
from ...history.audit import Actor
from ...values.clock import Clock, SystemClock
from ...values.text import duration
from ..answers import Problem
from .identity import ROLES, Identity
from .origins import cookie_name, set_cookie
from .passwords import check_password_hash, check_token_hash, hash_password, hash_token, matches, new_token
from .sessions import Signer, SignInSession, SignInSessions

SIMPLE_USER = "admin"
"""The user of a password that was given without a name."""
LONGEST_NAME = 200
_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]*")


@dataclass(frozen=True, slots=True)
class Credential:
    """Someone who can sign in: a user with a password, or a program with a token."""

    name: str
    role: str
    hash: str = ""
    fingerprint: str = ""


BROWSER = "browser"
BROWSER_FOR = 180 * 86_400
"""Seconds for which a browser is known."""


class KnownBrowser(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a cookie that stays after the session."""

    id: str
    user: str


class SignIn:
    """Users and tokens are written as `role:hash`, such as `operator:scrypt$…`.

    For people whom a proxy's header names, the role alone is enough.
    """

    def __init__(
        self,
        *,
        users: Mapping[str, str] | None = None,
        tokens: Mapping[str, str] | None = None,
        password: str = "",
        header: str = "",
        header_role: str = "viewer",
        secret: str = "",
        clock: Clock | None = None,
    ) -> None:
        """`password` is that of the user `admin`. `header` names the user; only a trusted proxy may set it.

        `secret` signs the sessions; without one they end with the process.
        """
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.signer = Signer(secret)
        self.sessions = SignInSessions(self.signer, self.clock)
        self.attempts = SignInAttempts(self.clock)
        self.computations = Computations()
        self.header = header.lower()
        self.survives_restarts = bool(secret)
        """Whether sessions are valid after a restart; then sign-outs must be known there too."""
        self.on_failure: Callable[[Actor], None] | None = None  # set by the dashboard, for its audit
        self._header_role = _checked_role(header_role, "header_role")
        self._roles: dict[str, str] = {}
        self._users: dict[str, Credential] = {}
        self._tokens: dict[str, Credential] = {}
        self._link: tuple[str, Credential] | None = None
        self._linked: Credential | None = None
        for name, text in (users or {}).items():
            self._add_user(name, text)
        for name, text in (tokens or {}).items():
            self._add_token(name, text)
        if password:
            print_ = self.signer.fingerprint("password", SIMPLE_USER, password)
            self._users[SIMPLE_USER] = Credential(SIMPLE_USER, "admin", hash_password(password), print_)

    # -- configuration -------------------------------------------------------------------------------------

    @property
    def has_passwords(self) -> bool:
        return bool(self._users)

    @property
    def only_user(self) -> str:
        """The name of the user if there is one only, whom the sign-in page need not ask for."""
        return next(iter(self._users)) if len(self._users) == 1 else ""

    @property
    def has_page(self) -> bool:
        """Whether people sign in here, and not at a proxy."""
        return self.has_passwords or self._link is not None or self._linked is not None

    def make_link(self, user: str = "local", role: str = "admin") -> str:
        """A secret that signs in once."""
        secret = new_token()
        self._link = (hash_token(secret), Credential(user, role, "", self.signer.fingerprint("link", secret)))
        return secret

    def _add_user(self, name: str, text: str) -> None:
        role, _, hashed = text.partition(":")
        place = f"users: {name}"
        _checked_role(role, place)
        self._roles[name] = role
        if not hashed:
            return
        try:
            check_password_hash(hashed)
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from None
        print_ = self.signer.fingerprint("password", name, role, hashed)
        self._users[name] = Credential(name, role, hashed, print_)

    def _add_token(self, name: str, text: str) -> None:
        role, _, hashed = text.partition(":")
        place = f"tokens: {name}"
        _checked_role(role, place)
        try:
            check_token_hash(hashed)
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from None
        self._tokens[hashed] = Credential(name, role, hashed)

    # -- requests ------------------------------------------------------------------------------------------

    def __call__(self, request: Request) -> Identity | None:
        """Who makes the request, by bearer token, proxy header or session; None if it is not known."""
        authorization = request.headers.get("authorization")
        if authorization is not None and authorization.partition(" ")[0].lower() == "bearer":
            found = self._by_token(authorization)
            if found is not None or not self.header:
                return found  # a proxy that signs people in may pass on a token of its own
        if self.header:
            return self._by_header(request)
        return self._by_session(request)

    def hash_for(self, name: str) -> str:
        """What a password is compared with: for a name that nobody has, the hash of one of the users.

        It is always the same one, so that no name can be told by the time that the comparison takes.
        """
        if name in self._users or not self._users:
            return self._users[name].hash if self._users else _hash_of_no_one()
        place = int.from_bytes(self.signer.fingerprint("no one", name).encode()) % len(self._users)
        return list(self._users.values())[place].hash

    def has_earlier_session(self, request: Request) -> bool:
        """Whether the session of the request is older than this process."""
        session = self.sessions.read(request) if self.survives_restarts else None
        return session is not None and session.issued < self.sessions.began

    def known_browser(self, request: Request, user: str) -> str:
        """The id of the request's browser if this user has signed in with it before; else empty."""
        text = request.cookies.get(cookie_name(request, BROWSER))
        found = self.signer.read(BROWSER, text, KnownBrowser) if text else None
        return found.id if found is not None and found.user == user else ""

    def remember_browser(self, request: Request, response: Response, user: str) -> None:
        """Let the browser show that this user has signed in with it, also after a restart."""
        known = self.signer.sign(BROWSER, KnownBrowser(id=secrets.token_urlsafe(12), user=user))
        set_cookie(request, response, BROWSER, known, max_age=BROWSER_FOR)

    def _by_token(self, authorization: str) -> Identity | None:
        token = authorization.partition(" ")[2]
        found = self._tokens.get(hash_token(token.strip()))
        return None if found is None else Identity.with_role(found.name, found.role, "token")

    def _by_header(self, request: Request) -> Identity | None:
        given = request.headers.getlist(self.header)
        name = given[0].strip() if len(given) == 1 else ""  # of two, one may be the client's own
        if not name:
            return None
        return Identity.with_role(name, self._roles.get(name, self._header_role), "header")

    def _by_session(self, request: Request) -> Identity | None:
        session = self.sessions.read(request)
        if session is None:
            return None
        credential = self._linked if session.how == "link" else self._users.get(session.user)
        if credential is None or not hmac.compare_digest(credential.fingerprint, session.fingerprint):
            return None
        identity = Identity.with_role(credential.name, credential.role, session.how)
        return replace(identity, expires_at=datetime.fromtimestamp(session.expires, UTC), session=session.id)

    # -- signing in ----------------------------------------------------------------------------------------

    async def with_password(self, user: str, password: str, address: str, request: Request) -> SignInSession:
        """A new session. The answer is the same for a wrong user and a wrong password."""
        name = user or self.only_user or SIMPLE_USER
        browser = self.known_browser(request, name)
        self.attempts.begin(address, name, browser)
        async with self.computations.slot():
            is_right = await asyncio.to_thread(matches, password, self.hash_for(name))
        found = self._users.get(name)
        if found is None or not is_right:
            self._report(name, "password", address)
            raise Problem(401, "The user or the password is wrong")
        self.attempts.succeeded(address, name, browser)
        return self.sessions.begin(found.name, "password", found.fingerprint)

    def with_link(self, secret: str, address: str) -> SignInSession:
        """A new session, if the one-time link has not been used."""
        self.attempts.begin(address)
        if self._link is None or not hmac.compare_digest(hash_token(secret), self._link[0]):
            self._report("", "link", address)
            raise Problem(
                401, "This link has been used, or is not valid",
                "Each link signs in once. Restart `graphile-worker admin` to get another one.",
            )  # fmt: skip
        self.attempts.succeeded(address)
        found = self._linked = self._link[1]
        self._link = None
        return self.sessions.begin(found.name, "link", found.fingerprint)

    def _report(self, user: str, how: str, address: str) -> None:
        if self.on_failure is not None:
            self.on_failure(Actor(user[:LONGEST_NAME], how, address))


def _checked_role(role: str, place: str) -> str:
    if role not in ROLES:
        raise ConfigError(f"{place}: expected a role ({', '.join(ROLES)}), got {role!r}")
    return role


def safe_path(path: str) -> str:
    """A path of this dashboard to go to after signing in; `/` in place of anything else."""
    return path if _PATH.fullmatch(path) else "/"


@cache
def _hash_of_no_one() -> str:
    """What a password is compared with where there are no users."""
    return hash_password("no one has this password")


# -- limits -------------------------------------------------------------------------------------------------

FREE_ATTEMPTS = 5
"""Failures of an address or a user before the first pause."""
LONGEST_PAUSE = 60.0
FORGOTTEN_AFTER = 900.0
"""Seconds after the last failure."""
MAX_ENTRIES = 10_000
MAX_KNOWN = 10_000
"""Pairs of a user and an address that are remembered."""
COMPUTED_AT_ONCE = 2
MAX_WAITING = 20
"""Attempts that wait for a computation; more are refused."""


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last: float = 0.0
    until: float = 0.0


class SignInAttempts:
    """Failures by address and by user, in memory. The oldest entries are dropped when there are too many.

    A user is paused for strange addresses only. So many addresses together get no more attempts than one, and
    nobody can keep people out of the place or of the browser where they have signed in before: failures of
    such a browser count for it alone.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, _Failures] = OrderedDict()
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()

    def begin(self, address: str, user: str = "", browser: str = "") -> None:
        """Count an attempt as failed before it is checked, so that many at once do not all get through.

        Raises a problem while the address is paused, or the user for an address that is not known. In a
        browser that the user is known by, only that browser may be paused.
        """
        now = self._clock.monotonic()
        keys = [f"browser {browser}"] if browser else _keys(address, user)
        asked = keys[:1] if (user[:LONGEST_NAME], keys[0]) in self._known else keys
        wait = max((self._failures[key].until - now for key in asked if key in self._failures), default=0.0)
        if wait > 0:
            seconds = int(wait) + 1
            again = f"Try again in {duration(seconds)}."
            raise Problem(429, "Too many attempts to sign in", again, retry_after=seconds)
        for key in keys:
            self._count(key, now)

    def succeeded(self, address: str, user: str = "", browser: str = "") -> None:
        """Forget the failures of the address, and that this attempt was counted for the user."""
        keys = _keys(address, user)
        if browser:
            self._failures.pop(f"browser {browser}", None)
            self._remember(user[:LONGEST_NAME], keys[0])
            return
        self._failures.pop(keys[0], None)
        for key in keys[1:]:
            entry = self._failures.get(key)
            if entry is not None:
                entry.count -= 1
                entry.until = entry.until if entry.count >= FREE_ATTEMPTS else 0.0
            self._remember(user[:LONGEST_NAME], keys[0])

    def _remember(self, user: str, address: str) -> None:
        self._known[user, address] = None
        self._known.move_to_end((user, address))
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)

    def _count(self, key: str, now: float) -> None:
        entry = self._failures.pop(key, None)
        if entry is None or now - entry.last > FORGOTTEN_AFTER:
            entry = _Failures()
        entry.count += 1
        entry.last = now
        if entry.count >= FREE_ATTEMPTS:
            # No power of a number without bounds: of a user under attack there are many failures.
            entry.until = now + min(LONGEST_PAUSE, 2.0 ** min(entry.count - FREE_ATTEMPTS, 10))
        self._failures[key] = entry
        while len(self._failures) > MAX_ENTRIES:
            self._failures.popitem(last=False)


def _keys(address: str, user: str) -> list[str]:
    return [address_key(address), *([f"user {user[:LONGEST_NAME]}"] if user else [])]


class Computations:
    """A password takes memory and time to check, so only a few are checked at a time."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(COMPUTED_AT_ONCE)
        self.waiting = 0

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        if self.waiting >= MAX_WAITING:
            raise Problem(503, "Too many people sign in at the moment", "Try again.", retry_after=2)
        self.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            self._slots.release()


def address_key(address: str) -> str:
    """The key of an address. One person has a whole /64 of IPv6, so that counts as one."""
    try:
        found = ip_address(address)
    except ValueError:
        return f"address {address}"
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return f"address {int(found) >> 64:x}/64"
    return f"address {getattr(found, 'ipv4_mapped', None) or found}"
