"""Route: one row of the table from which requests are served and the OpenAPI document is made.

A subject has its routes in a list `ROUTES` of its `views`; `table.py` has them all.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from importlib.resources import files
from typing import Any, Literal

from starlette.convertors import Convertor
from starlette.responses import Response
from starlette.routing import compile_path

from ...errors import ConfigError
from ..security.identity import PERMISSIONS, Access, Permission
from .call import Call

Handler = Callable[..., Awaitable[Any]]
"""Gets the `Call` and a struct, if it takes one: made of the query string of a GET, of the body of others.

Returns a `Page`, `Redirect` or `Download`, a Starlette response, or a struct that is sent as JSON.
"""
Method = Literal["GET", "POST", "PATCH", "DELETE"]


@dataclass(frozen=True, slots=True)
class Route:
    """`permission` is needed to call it; of several, one is needed and the handler requires the right one.

    A route that lacks one is refused when the module is imported. `signed_in` stands for any identity, and
    `open` for no sign-in at all.
    """

    path: str
    handler: Handler
    permission: Permission | tuple[Permission, ...] | Access
    summary: str
    """One line for the API documentation."""
    _: KW_ONLY
    method: Method = "GET"
    query: type[Any] | None = None
    """What the handler takes of the query string, as its second parameter says."""
    body: type[Any] | None = None
    """The same of the body. It is given if the type is made of a table, which the parameter cannot say."""
    answer: Any = None
    """The type of the JSON answer; None for pages."""
    media_type: str = "application/json"
    """Of the answer of an API route, if it is not JSON."""
    status: int = 200
    api: str | bool = False
    """Of a page or a form: whether the same handler serves JSON below `/api/v1`; a text is its path there.

    A page is also JSON at `PATH.json`, and with `Accept: application/json`.
    """
    json_of: str | None = None
    """Of a page: the API path with the same content."""
    streams: bool = False
    """The answer does not end by itself, so there is no HEAD."""
    needs: frozenset[str] = frozenset()
    """Python-only tables: where they are missing, its buttons are not offered and it answers 409."""
    own_pages_only: bool = False
    """Of a GET: no page of another site may ask for it, because it leaves a trace or holds a connection."""
    changes_nothing: bool = False
    """Of a POST: it only asks the database, or does not touch it, so a read-only dashboard has it too."""

    def __post_init__(self) -> None:
        known = PERMISSIONS.issuperset(self.permissions)
        if not known or not (self.permissions or self.access):
            raise ConfigError(f"{self.method} {self.path}: a route needs a known permission")
        if self.body is None and self.query is None:
            object.__setattr__(self, "query" if self.method == "GET" else "body", taken_by(self.handler))

    async def handle(self, call: Call) -> Any:
        """What the handler returns."""
        if self.query is not None:
            return await self.handler(call, call.query(self.query))
        if self.body is not None:
            return await self.handler(call, await call.body(self.body))
        return await self.handler(call)

    @property
    def is_write(self) -> bool:
        """Whether it may change something; such routes do not exist in a read-only dashboard."""
        return self.method != "GET" and not self.changes_nothing

    @property
    def is_api(self) -> bool:
        return self.path.startswith("/api/")

    @property
    def access(self) -> Access | None:
        """`open` or `signed_in`, for a route that needs no permission."""
        return self.permission if self.permission == "open" or self.permission == "signed_in" else None

    @property
    def permissions(self) -> tuple[Permission, ...]:
        if self.permission == "open" or self.permission == "signed_in":
            return ()
        return (self.permission,) if isinstance(self.permission, str) else self.permission


def taken_by(handler: Handler) -> type[Any] | None:
    """The type of the second parameter of a handler, if it has one."""
    if len(inspect.signature(handler).parameters) < 2:
        return None
    _, taken = inspect.signature(handler, eval_str=True).parameters.values()
    found: type[Any] = taken.annotation
    return found


API = "/api/v1"


def with_api(routes: Iterable[Route]) -> Iterator[Route]:
    """These routes, and for each that has an `api` another one, where its handler serves JSON."""
    for route in routes:
        if not route.api:
            yield route
            continue
        path = API + (route.path if route.api is True else str(route.api))
        yield replace(route, answer=None, json_of=path if route.method == "GET" else None)
        yield replace(route, path=path, api=False)


# -- finding a route ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Entry:
    route: Route
    pattern: re.Pattern[str]
    convertors: Mapping[str, Convertor[Any]]

    def values(self, path: str) -> dict[str, Any] | None:
        found = self.pattern.match(path)
        if found is None:
            return None
        try:
            return {name: self.convertors[name].convert(text) for name, text in found.groupdict().items()}
        except ValueError:  # a number of thousands of digits
            return None


class RouteTable:
    """The routes of one dashboard; those that write are left out of a read-only one."""

    def __init__(self, routes: Iterable[Route], *, read_only: bool = False) -> None:
        kept: list[Route] = []
        removed: list[Route] = []
        for route in routes:
            (removed if read_only and route.is_write else kept).append(route)
        self._by_path = {route.path: route for route in kept if route.method == "GET"}
        self._json = {route.path: self._api_route(route) for route in kept if route.json_of is not None}
        documents = [_entry(api, json_path(page)) for page, api in self._json.items()]
        self._entries = [*documents, *(_entry(route, route.path) for route in kept)]
        # A path whose routes all write is known, so that the answer is 405 and not 404.
        self._removed = [_entry(route, route.path) for route in removed]

    def find(self, method: str, path: str) -> tuple[Route, dict[str, Any]] | None:
        """The route of this method and path, and the values in the path. HEAD is served as GET."""
        wanted = "GET" if method == "HEAD" else method
        for entry in self._entries:
            if entry.route.method != wanted or (method == "HEAD" and entry.route.streams):
                continue
            if (values := entry.values(path)) is not None:
                return entry.route, values
        return None

    def methods(self, path: str) -> list[str] | None:
        """What the path can be called with; None if there is no such path."""
        found = [entry.route for entry in self._entries if entry.values(path) is not None]
        if found:
            heads = {"HEAD" for route in found if route.method == "GET" and not route.streams}
            return sorted({route.method for route in found} | heads)
        return [] if any(entry.values(path) is not None for entry in self._removed) else None

    def json_route(self, page: Route) -> Route | None:
        """The API route with the content of a page."""
        return self._json.get(page.path)

    def _api_route(self, page: Route) -> Route:
        api = self._by_path.get(page.json_of or "")
        if api is None:
            raise ConfigError(f"{page.path}: there is no API route {page.json_of}")
        return api


def json_path(page: str) -> str:
    """The path of a page's JSON: `/jobs.json`; that of the overview is `/overview.json`."""
    return "/overview.json" if page == "/" else f"{page}.json"


def _entry(route: Route, path: str) -> _Entry:
    pattern, _, convertors = compile_path(path)
    return _Entry(route, pattern, convertors)


# -- static files -------------------------------------------------------------------------------------------

TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
KEPT = "public, max-age=31536000, immutable"


class StaticFiles:
    """All files of `static/`, in memory. Modules import each other by relative paths: one hash covers all."""

    def __init__(self) -> None:
        folder = files("graphile_worker.admin").joinpath("static")
        self._content = {
            file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in TYPES
        }
        together = b"".join(name.encode() + body for name, body in sorted(self._content.items()))
        self._hash = hashlib.sha256(together).hexdigest()[:12]

    def url(self, name: str) -> str:
        """The path of a file below the dashboard's root."""
        return f"/static/{self._hash}/{name}"

    @property
    def route(self) -> Route:
        """Static files need no sign-in: the sign-in page uses them."""
        return Route(
            method="GET", path="/static/{hash}/{name}", handler=self.serve, permission="open",
            summary="Static files",
        )  # fmt: skip

    async def serve(self, call: Call) -> Response:
        name, hash = call.path_values["name"], call.path_values["hash"]
        body = self._content.get(name)
        if body is None or hash != self._hash:
            return Response("Not found\n", 404, media_type="text/plain")
        return Response(body, headers={"Cache-Control": KEPT, "Content-Type": TYPES[name.rpartition(".")[2]]})
