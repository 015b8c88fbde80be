"""The dashboard inside of other applications, behind proxies, and with several databases."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from graphile_worker import make_worker_utils
from graphile_worker.admin import AdminApp, Database, Identity, admin_app, everyone_may, mount
from graphile_worker.admin.security.proxies import BehindProxy
from graphile_worker.errors import ConfigError

from .callers import NOWHERE, same_origin
from .streams import reading

LINK = re.compile(r'(?:href|src|action)="([^"]*)"')


def in_starlette(admin: AdminApp) -> Any:
    return Starlette(routes=[Mount("/a/b", admin)])


def in_fastapi(admin: AdminApp) -> Any:
    inner, outer = FastAPI(), FastAPI()
    inner.mount("/b", admin)
    outer.mount("/a", inner)
    return outer


def in_django(admin: AdminApp) -> Any:
    from django.conf import settings

    if not settings.configured:
        settings.configure(DEBUG=False, ROOT_URLCONF="", ALLOWED_HOSTS=["*"])
    from django.core.asgi import get_asgi_application

    return mount("/a/b", admin, get_asgi_application())


def behind_a_proxy_that_strips(admin: AdminApp) -> Any:
    """What `--root-path /a/b` does; the path arrives without the prefix."""
    inner = BehindProxy(admin, root_path="/a/b")

    async def strip(scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        assert path.startswith("/a/b")
        await inner({**scope, "path": path.removeprefix("/a/b")}, receive, send)

    return strip


def in_fastapi_behind_a_proxy_that_strips(admin: AdminApp) -> Any:
    outer = FastAPI()
    outer.mount("/b", admin)
    return _stripped(outer)


def in_starlette_behind_a_proxy_that_strips(admin: AdminApp) -> Any:
    return _stripped(Starlette(routes=[Mount("/b", admin)]))


def beside_an_application_behind_a_proxy_that_strips(admin: AdminApp) -> Any:
    return _stripped(mount("/b", admin, Starlette()))


def _stripped(app: Any) -> Any:
    """The application knows a prefix as its root path, and the path arrives without it."""

    async def strip(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "root_path": "/a", "path": scope["path"].removeprefix("/a")}, receive, send)

    return strip


@pytest.fixture
async def admin(database_url: str) -> AsyncIterator[AdminApp]:
    app = admin_app(connection_string=database_url, authorize=everyone_may, environment="staging")
    yield app
    await app.aclose()


@pytest.mark.parametrize(
    "place",
    [
        in_starlette, in_fastapi, in_django, behind_a_proxy_that_strips,
        in_fastapi_behind_a_proxy_that_strips, in_starlette_behind_a_proxy_that_strips,
        beside_an_application_behind_a_proxy_that_strips,
    ],
)  # fmt: skip
async def test_all_links_stay_below_the_prefix(admin: AdminApp, place: Callable[[AdminApp], Any]) -> None:
    async with same_origin(place(admin)) as http:
        page = await http.get("/a/b/")
        assert page.status_code == 200
        assert "<nav" in page.text
        links = [link for link in LINK.findall(page.text) if not link.startswith("#")]
        assert links
        assert [link for link in links if not link.startswith("/a/b")] == []
        for link in sorted({link for link in links if "/static/" in link}):
            static = await http.get(link)
            assert static.status_code == 200
            assert static.headers["Cache-Control"].endswith("immutable")
        session = await http.get("/a/b/api/v1/session")
        assert session.json()["user"] == "anonymous"
        assert (await http.get("/a/b/nothing")).status_code == 404
        assert 'aria-current="page">Jobs' in (await http.get("/a/b/jobs")).text
        document = (await http.get("/a/b/api/v1/openapi.json")).json()
        assert document["servers"] == [{"url": "/a/b"}]


async def test_the_other_application_keeps_its_paths(admin: AdminApp) -> None:
    async def other(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    async with same_origin(mount("jobs/", admin, other)) as http:
        assert (await http.get("/jobs-elsewhere")).text == "/jobs-elsewhere"
        assert (await http.get("/")).text == "/"
        assert "<nav" in (await http.get("/jobs")).text
        assert "<nav" in (await http.get("/jobs/")).text


async def test_the_dashboard_may_be_all_there_is(admin: AdminApp) -> None:
    async with same_origin(mount("/", admin, Starlette())) as http:
        for path in ("/", "/jobs", "/api/v1/session"):
            assert (await http.get(path)).status_code == 200, path
        assert 'href="/jobs"' in (await http.get("/")).text


async def test_streams_end_when_the_host_ends_the_session(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphile_worker.admin.web import events

    monkeypatch.setattr(events, "ALIVE_EVERY", 0.05)
    sessions = {"ada"}

    async def who(request: object) -> Identity | None:
        return Identity.with_role("ada", "viewer") if "ada" in sessions else None

    admin = admin_app(connection_string=database_url, authorize=who)
    async with reading(admin) as reader:
        await reader.next("hello")
        sessions.clear()
        await reader.end()
    await admin.aclose()


# -- several databases -------------------------------------------------------------------------------------


async def test_each_database_has_its_own_pages(create_database: Any, template_database: str) -> None:
    urls = {name: create_database(template=template_database) for name in ("shop", "mail")}
    async with make_worker_utils(connection_string=urls["mail"]) as utils:
        await utils.add_job("only_in_mail")
    admin = admin_app(databases=urls, authorize=everyone_may)
    try:
        async with same_origin(mount("/jobs", admin, in_starlette(admin))) as http:
            first, second = await http.get("/jobs/"), await http.get("/jobs/~mail/")
            assert 'href="/jobs/~mail/"' in first.text
            assert 'href="/jobs/"' in second.text
            assert 'href="/jobs/~mail/jobs"' in second.text
            assert 'href="/jobs/~mail/jobs"' not in first.text
            assert "only_in_mail" not in (await http.get("/jobs/api/v1/jobs")).text
            assert "only_in_mail" in (await http.get("/jobs/~mail/api/v1/jobs")).text
            assert (await http.get("/jobs/~other/")).status_code == 404
            session = (await http.get("/jobs/~mail/api/v1/session")).json()
            assert session["databases"] == ["shop", "mail"]
            assert (await http.get("/jobs/readyz")).text == "ready\n"
    finally:
        await admin.aclose()


async def test_a_read_only_database_beside_another(create_database: Any, template_database: str) -> None:
    urls = [create_database(template=template_database) for _ in range(2)]
    admin = AdminApp(
        [
            Database("one", connection_string=urls[0]),
            Database("two", connection_string=urls[1], read_only=True),
        ],
        authorize=everyone_may,
    )
    body = {"action": "retry", "ids": [1]}
    async with same_origin(admin) as http:
        assert (await http.post("/api/v1/jobs/actions", json=body)).status_code == 200
        assert (await http.post("/~two/api/v1/jobs/actions", json=body)).status_code == 405
    await admin.aclose()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"databases": {"a/b": NOWHERE, "c": NOWHERE}}, "letters, digits"),
        ({"databases": {"a": NOWHERE}, "connection_string": NOWHERE}, "either"),
    ],
)
def test_wrong_databases_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        admin_app(authorize=everyone_may, **arguments)


async def test_an_idle_dashboard_opens_no_connection() -> None:
    admin = admin_app(connection_string=NOWHERE, authorize=everyone_may)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(admin), base_url="http://localhost") as http:
        assert (await http.get("/healthz")).status_code == 200
    assert admin.databases[0]._utils is None
    await admin.aclose()
