"""`admin_app`: the dashboard as an ASGI application."""

from __future__ import annotations

import inspect
import logging
import secrets
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route as StarletteRoute
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from ..db.connection import AnyPool
from ..errors import ConfigError
from .answers import Download, Page, Problem, Redirect, not_allowed
from .call import Call
from .database import Database
from .hub import Hubs
from .identity import Authorize
from .render import render
from .routes import Route
from .static_files import StaticFiles

logger = logging.getLogger("graphile_worker.admin")


def admin_app(
    *,
    connection_string: str | None = None,
    pg_pool: AnyPool | None = None,
    schema: str | None = None,
    authorize: Authorize | None = None,
    environment: str = "",
    read_only: bool = False,
) -> AdminApp:
    """The dashboard for one database. `authorize` decides who may see and do what; it has no default."""
    database = Database(
        connection_string=connection_string, pg_pool=pg_pool, schema=schema, read_only=read_only
    )
    return AdminApp([database], authorize=authorize, environment=environment)


class AdminApp:
    """An ASGI application. It opens its database at the first request; `aclose` closes it."""

    def __init__(
        self, databases: Sequence[Database], *, authorize: Authorize | None, environment: str = ""
    ) -> None:
        from .table import ROUTES

        if authorize is None:
            raise ConfigError(
                "authorize: the dashboard is closed by default; pass a function that returns an Identity "
                "for those who may use it, or everyone_may"
            )
        self.databases = list(databases)
        self.hubs = Hubs(self.databases)
        self.environment = environment
        self.static = StaticFiles()
        self._authorize = authorize
        served = [self._served(route) for route in ROUTES]
        served.append(StarletteRoute("/static/{hash}/{name}", self.static.serve, methods=["GET"]))
        self._router = Router(served)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._router(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)

    async def aclose(self) -> None:
        """End live updates and close connections, when the application that mounts it ends."""
        await self.hubs.close()
        for database in self.databases:
            await database.aclose()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    def _served(self, route: Route) -> StarletteRoute:
        async def endpoint(request: Request) -> Response:
            return await self._answer(route, request)

        return StarletteRoute(route.path, endpoint, methods=[route.method])

    async def _answer(self, route: Route, request: Request) -> Response:
        identity = self._authorize(request)
        if inspect.isawaitable(identity):
            identity = await identity
        if isinstance(identity, Response):
            return identity
        if identity is None:
            return PlainTextResponse("Sign in first", 401)
        call = Call(self, request, identity, self.databases[0], secrets.token_urlsafe(16))
        try:
            if not any(identity.may(permission) for permission in route.permissions):
                raise not_allowed(route.permissions[0])
            return _response(call, route, await route.handler(call))
        except Problem as problem:
            return _problem(call, route, problem)


def _response(call: Call, route: Route, answer: Any) -> Response:
    if isinstance(answer, Response):
        return answer
    if isinstance(answer, Page):
        return Response(render(call, answer), answer.status, media_type="text/html")
    if isinstance(answer, Redirect):
        return RedirectResponse(call.url(answer.path), 303)
    if isinstance(answer, Download):
        headers = {"Content-Disposition": f'attachment; filename="{answer.name}"'}
        return Response(answer.content, headers=headers, media_type=answer.media_type)
    return Response(msgspec.json.encode(answer), route.status, media_type="application/json")


def _problem(call: Call, route: Route, problem: Problem) -> Response:
    if route.is_api:
        content = {"title": problem.title, "status": problem.status, "detail": problem.detail, **problem.more}
        return Response(msgspec.json.encode(content), problem.status, media_type="application/problem+json")
    page = Page("problem.html", problem.title, values={"detail": problem.detail}, status=problem.status)
    return Response(render(call, page), problem.status, media_type="text/html")
