"""`admin_app`: the dashboard as an ASGI application.

A request passes, in this order: the host check, the choice of the database, the table of routes, the sign-in,
the origin check, the permission, the handler. Every answer gets the security headers.
"""

from __future__ import annotations

import asyncio
import hmac
import inspect
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..database.connections.connection import AnyPool
from ..errors import ConfigError
from ..errors.text import message_of
from .answers import Page, Problem, not_allowed
from .audit.recording import SignInAudit, read_sign_outs
from .database import Database
from .operations.runner import OperationRunner
from .security.identity import NO_ONE, READING, ROLES, Authorize, Identity
from .security.origins import HostRule, answer_headers, check_frame_ancestors, check_origin
from .security.proxies import HOST_CHECKED
from .security.redact import FormatPayload
from .security.sessions import LASTS, Signer
from .security.sign_in import SignIn, safe_path
from .settings import AppSettings
from .table import ROUTES
from .web.call import ROOT, Call
from .web.problems import problem_of
from .web.respond import (
    page_response,
    preferred_type,
    problem_document,
    problem_response,
    read_notice,
    response_of,
    with_problem_headers,
)
from .web.routes import Route, RouteTable, StaticFiles

T = TypeVar("T")

MAX_QUERY = 8192
"""Bytes of a query string."""
LONGEST_LOGGED = 200
"""Characters of a path in the log."""
ANY_HOST = ("/healthz", "/readyz")
"""Paths that tell nothing, and that orchestrators call by address."""
NONCE = "graphile_worker.nonce"
_DATABASE = re.compile(r"/~([A-Za-z0-9_-]{1,63})(?=/|$)")

logger = logging.getLogger("graphile_worker.admin")


def admin_app(
    *,
    connection_string: str | None = None,
    pg_pool: AnyPool | None = None,
    schema: str | None = None,
    databases: Mapping[str, str | Database] | None = None,
    authorize: Authorize | None = None,
    read_only: bool = False,
    environment: str = "",
    redact: Sequence[str] = (),
    format_payload: FormatPayload | None = None,
    job_links: Mapping[str, str] | None = None,
    back_link: str = "",
    allowed_hosts: Sequence[str] | None = None,
    frame_ancestors: Sequence[str] = (),
    secret: str = "",
    metrics_token: str = "",
    metrics_queues: Sequence[str] = (),
) -> AdminApp:
    """The dashboard. `authorize` decides who may see and do what; it has no default.

    `databases` names several databases, as connection strings or as `Database`; the first one is shown at the
    root, and the others below `/~NAME`.
    """
    if databases is not None and (connection_string is not None or pg_pool is not None):
        raise ConfigError("databases: give either this, or connection_string or pg_pool")
    chosen = [
        found
        if isinstance(found, Database)
        else Database(name, connection_string=found, schema=schema, read_only=read_only)
        for name, found in (databases or {}).items()
    ] or [Database(connection_string=connection_string, pg_pool=pg_pool, schema=schema, read_only=read_only)]
    settings = AppSettings(
        environment=environment, redact=tuple(redact), format_payload=format_payload,
        job_links=dict(job_links or {}), back_link=back_link, allowed_hosts=allowed_hosts,
        frame_ancestors=tuple(frame_ancestors), secret=secret, metrics_token=metrics_token,
        metrics_queues=tuple(metrics_queues),
    )  # fmt: skip
    return AdminApp(chosen, authorize=authorize, settings=settings)


class AdminApp:
    """An ASGI application. It opens its database at the first request; `aclose` closes it."""

    def __init__(
        self,
        databases: Sequence[Database],
        *,
        authorize: Authorize | None,
        settings: AppSettings | None = None,
        hosts: HostRule | None = None,
    ) -> None:
        if authorize is None:
            raise ConfigError(
                "authorize: the dashboard is closed by default; pass a function that returns an Identity "
                "for those who may use it, or everyone_may"
            )
        self.settings = settings if settings is not None else AppSettings()
        check_frame_ancestors(self.settings.frame_ancestors)
        self.databases = list(databases)
        self._by_name = _named(self.databases)
        for database in self.databases:
            database.runner = database.runner or OperationRunner(database)
        self.authorize = authorize
        self.signer = Signer(self.settings.secret)
        self._static = StaticFiles()
        self.stopping = asyncio.Event()
        """Set when the server stops: streams end then."""
        self._hosts = hosts if hosts is not None else HostRule.of(self.settings.allowed_hosts)
        self.routes = ROUTES
        self._tables = {
            read_only: RouteTable([*ROUTES, self._static.route], read_only=read_only)
            for read_only in {database.is_read_only for database in self.databases}
        }
        self._shared: dict[Hashable, Any] = {}
        self._has_begun = False
        self._knows_sign_outs = False
        if isinstance(authorize, SignIn):
            authorize.on_failure = self.shared("sign-ins", lambda: SignInAudit(self.databases[0])).record

    @property
    def environment(self) -> str:
        return self.settings.environment

    def prefix_of(self, database: Database) -> str:
        """The path below which a database is shown."""
        return "" if database is self.databases[0] else f"/~{database.name}"

    def offers(self, database: Database, path: str) -> bool:
        """Whether a form or page can work: the database has the tables that it needs."""
        table = self._tables[database.is_read_only]
        found = table.find("POST", path) or table.find("GET", path)
        return found is None or database.tables is None or database.tables >= found[0].needs

    def static_url(self, name: str) -> str:
        """The path of a static file below the root."""
        return self._static.url(name)

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """One object for all calls, such as the sampler of a database; its `aclose` is called at the end."""
        if key not in self._shared:
            self._shared[key] = make()
        return cast(T, self._shared[key])

    def begin(self) -> None:
        """Go on with operations that an earlier process left. Without it, the first request does."""
        if not self._has_begun:
            self._has_begun = True
            for database in self.databases:
                database.operations.adopt_later()

    def stop(self) -> None:
        """End all streams, before the server waits for connections to close."""
        self.stopping.set()

    async def aclose(self) -> None:
        """Close connections. Call it when the application that mounts the dashboard ends."""
        self.stop()
        while self._shared:
            _, found = self._shared.popitem()
            close: Callable[[], Awaitable[None]] | None = getattr(found, "aclose", None)
            if close is not None:
                await close()
        for database in self.databases:
            await database.aclose()

    # -- requests ------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self.begin()
            root = scope.get("root_path", "")
            whole = root + _path_below_root(scope)  # as if no proxy had taken a part of it away
            scope = {**scope, "path": whole, ROOT: root, NONCE: secrets.token_urlsafe(16)}
            request = Request(scope, receive)
            response, is_ours = await self._respond(request)
            if is_ours:
                send = _sending(send, answer_headers(scope[NONCE], self.settings.frame_ancestors))
            if request.method == "HEAD":
                response = Response(status_code=response.status_code, headers=dict(response.headers))
            await response(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        self.begin()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def _respond(self, request: Request) -> tuple[Response, bool]:
        """The response, and whether it is ours; what `authorize` answers is left as it is."""
        path = _path_below_root(request.scope)
        if not self._is_for_us(request, path):
            return _foreign_host(), True
        database, path = self._choose(request.scope, path)
        call = Call(self, request, NO_ONE, database, request.scope[NONCE])
        is_api = path.startswith("/api/")
        try:
            return await self._answer(call, path)
        except ClientDisconnect:
            return Response(status_code=400), True
        except Exception as error:
            problem = problem_of(error) or Problem(
                500, "Something went wrong in the dashboard", "This is a fault of the dashboard."
            )
            _log(problem, error, request)
            return self._problem(call, problem, is_api=is_api), True

    def _is_for_us(self, request: Request, path: str) -> bool:
        if path in ANY_HOST or request.scope.get(HOST_CHECKED):
            return True
        return self._hosts.accepts(request.headers.get("host"), request.scope.get("scheme", "http"))

    def _choose(self, scope: Scope, path: str) -> tuple[Database, str]:
        """The database of a path, and the path below that database's root."""
        found = _DATABASE.match(path)
        if found is None or found[1] not in self._by_name:
            return self.databases[0], path
        scope["root_path"] = scope[ROOT] + found[0]
        return self._by_name[found[1]], path[found.end() :] or "/"

    async def _answer(self, call: Call, path: str) -> tuple[Response, bool]:
        request = call.request
        if len(request.scope.get("query_string", b"")) > MAX_QUERY:
            raise Problem(414, "The address is too long", f"At most {MAX_QUERY:,} bytes are accepted.")
        table = self._tables[call.database.is_read_only]
        found = table.find(request.method, path)
        route, values = found if found is not None else (None, {})
        is_page = route is not None and route.method == "GET" and not route.is_api
        if route is not None and is_page and preferred_type(request) == "application/json":
            route = table.json_route(route) or route
        if route is None or route.access != "open":
            identity = await self._identify(request, path)
            if isinstance(identity, Response):
                return identity, False
            if identity is None:
                return self._signed_out(call, path), True
            call.identity = identity.limited_to(READING) if call.database.is_read_only else identity
        if route is None:
            return self._no_route(call, table, path), True
        request.scope["path_params"] = values
        call.is_api = route.is_api
        _check_request(call, route)
        if route.permissions and not any(call.identity.may(each) for each in route.permissions):
            raise not_allowed(route.permissions[0])
        return await self._handle(call, route), True

    async def _handle(self, call: Call, route: Route) -> Response:
        call.notice = read_notice(call)
        await _check_tables(call, route)
        if route.method == "GET" and route.access != "open":
            async with call.database.turn(call.identity.name):
                answer = await route.handle(call)
        else:
            answer = await route.handle(call)
        return await response_of(call, route, answer)

    async def still_knows(self, call: Call) -> bool:
        """Whether the person behind a call that lasts would still be let in: `authorize` is asked again."""
        try:
            found = await self._identify(call.request, "")
        except Exception:
            logger.exception("authorize failed for a stream; closing it")
            return False
        return isinstance(found, Identity) and found.name == call.identity.name and found.may("jobs.read")

    async def _learn_sign_outs(self, sign_in: SignIn) -> None:
        """A fixed secret outlives the process, so it must know who signed out before it began."""
        since = datetime.fromtimestamp(sign_in.sessions.began - LASTS, UTC)
        try:
            sign_in.sessions.end_earlier(await read_sign_outs(self.databases[0], since))
            self._knows_sign_outs = True
        except Exception as error:
            logger.warning("could not read which sessions have signed out: %s", message_of(error))

    async def _identify(self, request: Request, path: str) -> Identity | Response | None:
        sign_in = self.authorize
        if isinstance(sign_in, SignIn) and not self._knows_sign_outs and sign_in.has_earlier_session(request):
            await self._learn_sign_outs(sign_in)
        token = self.settings.metrics_token
        if token and path == "/metrics":
            given = request.headers.get("authorization", "")
            if hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
                return Identity(name="metrics", permissions=ROLES["metrics"], how="token")
        found = self.authorize(request)
        if inspect.isawaitable(found):
            found = await found
        if found is not None and not isinstance(found, Identity | Response):
            raise TypeError(f"authorize returned {type(found).__name__}, not an Identity, a Response or None")
        return found

    def _signed_out(self, call: Call, path: str) -> Response:
        request = call.request
        is_visit = (
            request.method in ("GET", "HEAD")
            and preferred_type(request) == "text/html"
            and request.headers.get("sec-fetch-dest", "document") == "document"
        )
        has_page = isinstance(self.authorize, SignIn) and self.authorize.has_page
        if path.startswith("/api/") or not is_visit or not has_page:
            problem = Problem(401, "Sign in first", "" if has_page else "Nothing says who you are.")
            return self._problem(call, problem, is_api=path.startswith("/api/"))
        query = _query(request)
        target = safe_path(path + (f"?{query}" if query else ""))
        target = self.prefix_of(call.database) + target
        if request.headers.get("sec-fetch-site") == "cross-site":
            # The cookie is not sent when a link of another site is followed, but it is after a refresh.
            values = {"target": call.app_url(target)}
            return page_response(call, Page("bounce.html", "Continue", values=values))
        return RedirectResponse(call.app_url("/login", next=target), 303)

    def _no_route(self, call: Call, table: RouteTable, path: str) -> Response:
        shorter = path.rstrip("/")
        if shorter != path and shorter and table.find("GET", shorter) is not None:
            query = _query(call.request)
            return RedirectResponse(call.url(shorter) + (f"?{query}" if query else ""), 307)
        methods = table.methods(path)
        if methods is None:
            raise Problem(404, "There is no such page", "Check the address, or choose a page.")
        if not methods and call.database.is_read_only:
            raise Problem(405, "This dashboard is read-only", allow=methods)
        raise Problem(405, f"{call.request.method} is not possible here", allow=methods)

    def _problem(self, call: Call, problem: Problem, *, is_api: bool) -> Response:
        try:
            return problem_response(call, problem, is_api=is_api)
        except Exception:
            logger.exception("the error page could not be rendered")
            return with_problem_headers(problem_document(problem), problem)


def _check_request(call: Call, route: Route) -> None:
    """Refuse what another site may have sent, and bodies that are not what the route takes."""
    request = call.request
    is_token = call.identity.how == "token"
    if route.method == "GET":
        if route.own_pages_only:
            scheme = request.scope.get("scheme", "http")
            check_origin(request.headers, scheme, is_token=is_token, is_get=True)
        return
    check_origin(request.headers, request.scope.get("scheme", "http"), is_token=is_token)
    if is_token and not route.is_api:
        raise Problem(403, "Bearer tokens are for the API", "Use the same action below /api/v1.")
    has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    if route.is_api and has_body:
        call.check_json()


async def _check_tables(call: Call, route: Route) -> None:
    """Refuse what this schema has no tables for."""
    if route.needs and (missing := await call.database.missing(route.needs)):
        raise Problem(
            409, "This schema lacks the tables for this, or the dashboard's role may not read them",
            f"Missing: {', '.join(sorted(missing))}. To create what Python workers add to Node's schema, run "
            "as its owner: graphile-worker migrate",
        )  # fmt: skip


def _path_below_root(scope: Scope) -> str:
    """The path as the dashboard knows it, also if a proxy has taken away what is above the application."""
    path: str = scope.get("path", "")
    root: str = scope.get("root_path", "")
    for prefix in (root, root.removeprefix(scope.get("app_root_path", ""))):
        if prefix and (path == prefix or path.startswith(prefix + "/")):
            return path[len(prefix) :] or "/"
    return path or "/"


def _query(request: Request) -> str:
    found: bytes = request.scope.get("query_string", b"")
    return found.decode("latin-1")


def _named(databases: Sequence[Database]) -> dict[str, Database]:
    if not databases:
        raise ConfigError("databases: give at least one")
    found = {database.name: database for database in databases}
    if len(found) < len(databases):
        raise ConfigError("databases: each needs a name of its own")
    for name in found:
        if len(databases) > 1 and not _DATABASE.fullmatch(f"/~{name}"):
            raise ConfigError(f"databases: {name!r}: a name has letters, digits, _ and - only")
    return found


def _sending(send: Send, headers: Mapping[str, str]) -> Send:
    """Adds headers to an answer, except those that it already has."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", ()))
            names = {name.lower() for name, _ in given}
            given += [
                (name.lower().encode(), value.encode("latin-1"))
                for name, value in headers.items()
                if name.lower().encode() not in names
            ]
            message = {**message, "headers": given}
        await send(message)

    return send_with_headers


def _foreign_host() -> Response:
    return PlainTextResponse(
        "This dashboard is not known by this host name. Start it with --allowed-host NAME, or give "
        "allowed_hosts to admin_app.\n",
        421,
    )


def _log(problem: Problem, error: Exception, request: Request) -> None:
    """Log faults with an id that the answer shows, and trouble with the database without a traceback."""
    if problem.status < 500:
        return
    problem.more["id"] = secrets.token_hex(4)
    path = repr(request.scope["path"][:LONGEST_LOGGED])  # it must not write lines of its own
    if problem.status == 500:
        logger.error("%s %s failed, id %s", request.method, path, problem.more["id"], exc_info=error)
    else:
        logger.warning(
            "%s %s: %s: %s (id %s)",
            request.method,
            path,
            problem.title,
            message_of(error),
            problem.more["id"],
        )


# -- mounting -----------------------------------------------------------------------------------------------


def mount(prefix: str, admin: ASGIApp, application: ASGIApp) -> ASGIApp:
    """Send what is below `prefix` to the dashboard, and all else to the application: Django, or any other."""
    prefix = f"/{prefix.strip('/')}".rstrip("/")

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        path = _path_below_root(scope)
        if scope["type"] != "http" or not (path == prefix or path.startswith(prefix + "/")):
            await application(scope, receive, send)
            return
        root = scope.get("root_path", "")
        await admin({**scope, "root_path": root + prefix, "path": root + path}, receive, send)

    return dispatch
