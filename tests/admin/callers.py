"""Clients and identities for tests of who may do what."""

from __future__ import annotations

from typing import Any

import httpx
from starlette.requests import Request

from graphile_worker.admin import AdminApp, Identity
from graphile_worker.admin.web.routes import Route

NOWHERE = "postgres://nowhere.invalid/unused"
"""A database that is never asked: the name does not resolve."""
ROLE = "X-Test-Role"


def by_role(request: Request) -> Identity | None:
    """For `authorize`: the role that the test names; None without one."""
    role = request.headers.get(ROLE)
    return Identity.with_role(role, role, "test") if role else None


def client(app: Any, *, url: str = "http://localhost", **headers: str) -> httpx.AsyncClient:
    """A client without headers of its own but those given."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=url, headers=headers)


def same_origin(app: Any, **headers: str) -> httpx.AsyncClient:
    """A browser that is on one of the dashboard's pages."""
    return client(app, **{"Sec-Fetch-Site": "same-origin", **headers})


def example_path(route: Route) -> str:
    """A path that the route serves."""
    import re

    return re.sub(r"\{[a-z_]+:int\}", "1", re.sub(r"\{[a-z_]+\}", "1", route.path))


async def call_route(http: httpx.AsyncClient, app: AdminApp, route: Route, **headers: str) -> httpx.Response:
    """Call a route with an empty body."""
    if route.method == "GET":
        return await http.get(example_path(route), headers=headers)
    if route.is_api:
        return await http.request(route.method, example_path(route), json={}, headers=headers)
    return await http.request(route.method, example_path(route), data={}, headers=headers)


async def drop_own_tables(connection: Any) -> None:
    """Leave a schema such as Node installs it, without any Python-only table."""
    tables = await connection.fetch(
        "select oid::regclass::text from pg_class where relname like '\\_private\\_py\\_%' "
        "and relkind in ('r', 'p') and not relispartition"
    )
    for table in tables:
        await connection.execute(f"drop table {table[0]} cascade")
