"""The dashboard as a program of its own: who may sign in, which hosts are ours, which databases are shown."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..config.settings import AdminOptions
from ..errors import ConfigError
from .app import AdminApp
from .database import Database
from .security.identity import Authorize, everyone_may
from .security.origins import HostRule, is_loopback
from .security.proxies import BehindProxy
from .security.sign_in import SignIn
from .settings import AppSettings

NO_CREDENTIALS = """the dashboard would be reachable from other machines, and no credentials are configured.

Choose one of these:
  password  set GRAPHILE_WORKER_ADMIN_PASSWORD, or list users in [admin.users] (`graphile-worker admin hash`)
  proxy     let a proxy sign people in: --auth-header X-Forwarded-User --trusted-proxy 10.0.0.5
  tunnel    listen on 127.0.0.1, and reach it through `ssh -L 5678:127.0.0.1:5678 SERVER`"""
NO_HOSTS = (
    "the dashboard would be reachable from other machines, and must know its host names: give "
    "--allowed-host NAME for each of them"
)


class RefusedError(ConfigError):
    """The options would leave the dashboard open."""


@dataclass(frozen=True, slots=True)
class Standalone:
    """A dashboard that is ready to be served."""

    app: ASGIApp
    admin: AdminApp
    link: str
    """The secret of the one-time link, if people sign in with one."""
    root_path: str = ""

    def url(self, host: str, port: int) -> str:
        """The address for people, with the secret in the fragment, which reaches no log."""
        name = f"[{host}]" if ":" in host else host
        path = "/login#token=" + self.link if self.link else "/"
        return f"http://{name}:{port}{self.root_path}{path}"


def standalone(
    options: AdminOptions,
    *,
    host: str,
    port: int,
    connection_string: str | None = None,
    schema: str | None = None,
) -> Standalone:
    """Build the dashboard for an address. Refuses what would leave it open to other machines."""
    is_local = is_loopback(host)
    authorize, link = _sign_in(options, is_local=is_local)
    has_proxy = bool(options.trusted_proxies or options.proxy_secret)
    if not is_local and not options.allowed_hosts and not has_proxy:
        raise RefusedError(NO_HOSTS)
    hosts = (
        HostRule.of_loopback(port, options.allowed_hosts) if is_local else HostRule.of(options.allowed_hosts)
    )
    settings = AppSettings(
        environment=options.environment or "", redact=tuple(options.redact), job_links=options.job_links,
        back_link=options.back_link or "", frame_ancestors=tuple(options.frame_ancestors),
        secret=options.secret or "", metrics_token=options.metrics_token or "",
        metrics_queues=tuple(options.metrics_queues),
    )  # fmt: skip
    databases = _databases(options, connection_string, schema)
    admin = AdminApp(databases, authorize=authorize, settings=settings, hosts=hosts)
    app = BehindProxy(
        admin, trusted=options.trusted_proxies, secret=options.proxy_secret or "",
        auth_header=options.auth_header or "", root_path=options.root_path,
        checks_hosts=has_proxy and not options.allowed_hosts,
    )  # fmt: skip
    return Standalone(app, admin, link, options.root_path)


def _sign_in(options: AdminOptions, *, is_local: bool) -> tuple[Authorize, str]:
    """Who may use it, and the secret of a one-time link."""
    kind = options.auth or _kind(options)
    if kind == "none":
        if not is_local:
            raise RefusedError("--no-auth is for loopback only: other machines could reach the dashboard")
        return everyone_may, ""
    if kind == "header":
        return _header_sign_in(options), ""
    has_passwords = options.password or any(":" in text for text in options.users.values())
    if kind == "password" and not has_passwords:
        raise RefusedError(
            "--auth password needs a password: set GRAPHILE_WORKER_ADMIN_PASSWORD, or list users in "
            "[admin.users] (`graphile-worker admin hash`)"
        )
    if kind == "token" and not is_local:
        raise RefusedError(NO_CREDENTIALS)
    found = SignIn(
        users=options.users if kind == "password" else None, tokens=options.tokens,
        password=options.password or "" if kind == "password" else "", secret=options.secret or "",
    )  # fmt: skip
    return found, found.make_link(_person()) if kind == "token" else ""


def _header_sign_in(options: AdminOptions) -> SignIn:
    if not options.auth_header:
        raise RefusedError("--auth header needs the name of the header: --auth-header X-Forwarded-User")
    if not options.trusted_proxies and not options.proxy_secret:
        raise RefusedError(
            "--auth-header needs to know the proxy, because everyone can send a header: give --trusted-proxy "
            "with its address or network, or set GRAPHILE_WORKER_ADMIN_PROXY_SECRET"
        )
    return SignIn(
        users=options.users, tokens=options.tokens, header=options.auth_header,
        header_role=options.auth_role, secret=options.secret or "",
    )  # fmt: skip


def _kind(options: AdminOptions) -> str:
    if options.auth_header:
        return "header"
    return "password" if options.password or options.users else "token"


def _databases(options: AdminOptions, connection_string: str | None, schema: str | None) -> list[Database]:
    if not options.databases:
        return [Database(connection_string=connection_string, schema=schema, read_only=options.read_only)]
    found = []
    for name, text in options.databases.items():
        url, own = split_schema(text)
        found.append(Database(name, connection_string=url, schema=own or schema, read_only=options.read_only))
    return found


def split_schema(text: str) -> tuple[str, str | None]:
    """A connection URL without its parameter `schema`, and the schema."""
    if "://" not in text:
        return text, None
    parts = urlsplit(text)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    found = [value for name, value in pairs if name == "schema"]
    if not found:
        return text, None
    query = urlencode([(name, value) for name, value in pairs if name != "schema"])
    return urlunsplit(parts._replace(query=query)), found[-1]


def _person() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such user in a container
        return "local"


# -- serving ------------------------------------------------------------------------------------------------

END_WITHIN = 1
"""Seconds for requests to end when the server stops; streams end at once."""
BACKLOG = 128
REQUEST_WITHIN = 20.0
"""Seconds for the head of a request, and for its body."""
MOST_WAITING = 64
"""Connections whose request has not arrived; of more, the oldest is closed."""
MOST_AT_ONCE = 250
"""Connections; requests of more are refused. There are up to 100 streams."""


def listen(host: str, port: int) -> socket.socket:
    """A socket on the address. Raises ConfigError if it is in use or not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"admin.listen: cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}; choose another "
            "address with --listen; port 0 takes any that is free"
        ) from error


class PatientProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, which waits for the rest of a request without end; this does not.

    Whoever opens many connections and finishes no request loses them to those who come later.
    """

    _awaited: object = None
    """The part of a request that the client has to send, and the request before it."""
    _since = 0.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._wait_for(None)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def _look(self) -> None:
        cycle = self.cycle
        if self.transport.is_closing():
            self._wait_for(None)
        elif cycle is None or cycle.response_complete:
            self._wait_for((cycle, "head"))
        else:
            self._wait_for((cycle, "body") if cycle.more_body else None)

    def _wait_for(self, awaited: object) -> None:
        if awaited == self._awaited:
            return
        self._awaited = awaited
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if awaited is not None:
            self._since = self.loop.time()
            self._timer = self.loop.call_later(REQUEST_WITHIN, self._give_up)
            waiting = [each for each in self.connections if getattr(each, "_awaited", None) is not None]
            if len(waiting) > MOST_WAITING:
                min(waiting, key=lambda each: getattr(each, "_since", 0.0))._give_up()  # type: ignore[union-attr]

    def _give_up(self) -> None:
        self._wait_for(None)
        self.transport.close()


class DashboardServer(uvicorn.Server):
    """A server that leaves signals to the command, and ends streams before it waits for connections."""

    def __init__(self, app: ASGIApp, admin: AdminApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                access_log=False,
                log_config=None,
                log_level="warning",
                lifespan="off",
                proxy_headers=False,  # trusted proxies are our own matter
                server_header=False,
                timeout_graceful_shutdown=END_WITHIN,
                ws="none",
                http=PatientProtocol,
                backlog=BACKLOG,
                limit_concurrency=MOST_AT_ONCE,
            )
        )
        self._admin = admin

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """Stop serving; `run` returns soon after."""
        self._admin.stop()
        self.should_exit = True

    async def run_on(self, endpoint: socket.socket) -> None:
        """Serve until `stop` is called or the task is cancelled."""
        self._admin.begin()
        serving = asyncio.ensure_future(self.serve(sockets=[endpoint]))
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            self.stop()
            await serving
            raise
        finally:
            await self._admin.aclose()
