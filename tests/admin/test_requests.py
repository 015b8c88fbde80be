"""The way of a request: host, headers, methods, origin, bodies, problems."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import asyncpg
import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from graphile_worker.admin import AdminApp, Identity, admin_app, everyone_may
from graphile_worker.admin.app import MAX_QUERY
from graphile_worker.admin.security.identity import PERMISSIONS
from graphile_worker.admin.security.origins import HostRule, is_own_origin
from graphile_worker.admin.web.call import MAX_BODY
from graphile_worker.admin.web.routes import Route
from graphile_worker.errors import ConfigError

from .callers import NOWHERE, client, same_origin

SESSION = "/api/v1/session"
ACTIONS = "/api/v1/jobs/actions"


@pytest.fixture
def app() -> AdminApp:
    """Lets everyone in, and never reaches its database."""
    return admin_app(connection_string=NOWHERE, authorize=everyone_may, allowed_hosts=["localhost"])


# -- the Host header ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", SESSION, "/static/x/look.css", "/nothing", "/login"])
@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", ""])
async def test_a_foreign_host_reaches_nothing(app: AdminApp, path: str, host: str) -> None:
    async with client(app) as http:
        answer = await http.get(path, headers={"Host": host})
    assert answer.status_code == 421
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert "evil" not in answer.text


async def test_probes_are_answered_under_any_name(app: AdminApp) -> None:
    async with client(app) as http:
        answer = await http.get("/healthz", headers={"Host": "10.1.2.3:5678"})
    assert (answer.status_code, answer.text) == (200, "ok\n")


def test_names_of_loopback_need_the_port() -> None:
    rule = HostRule.of_loopback(5678, ["jobs.example.com", "other.example:8443"])
    for good in ("localhost:5678", "127.0.0.1:5678", "[::1]:5678", "LOCALHOST:5678", "jobs.example.com",
                 "jobs.example.com:443", "other.example:8443"):  # fmt: skip
        assert rule.accepts(good), good
    for bad in (None, "", "localhost", "localhost:5679", "127.0.0.1", "evil.example:5678", "other.example",
                "localhost:5678@evil", "other.example:80", "localhost:5678/", "a\r\nX:", "::1"):  # fmt: skip
        assert not rule.accepts(bad), bad
    assert HostRule.of(["jobs.example.com:443"]).accepts("jobs.example.com", "https")
    assert HostRule.of(["*"]).accepts("anything")
    assert not HostRule.of([]).accepts("anything")


# -- headers of answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", SESSION, "/nothing", "/api/v1/nothing", "/login", "/healthz", "/static/0/x.js"]
)
async def test_every_answer_has_the_headers(app: AdminApp, path: str) -> None:
    async with same_origin(app) as http:
        answer = await http.get(path)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "base-uri 'none'" in policy
    assert "unsafe" not in policy
    assert "script-src 'self'" not in policy
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "same-origin"
    assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert answer.headers["Cache-Control"] == "no-store"
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_each_answer_has_a_nonce_of_its_own_that_its_scripts_have(app: AdminApp) -> None:
    async with same_origin(app) as http:
        first, second = await http.get("/nothing"), await http.get("/nothing")
    policies = [answer.headers["Content-Security-Policy"] for answer in (first, second)]
    assert policies[0] != policies[1]
    nonce = policies[0].partition("'nonce-")[2].partition("'")[0]
    assert f'nonce="{nonce}"' in first.text


async def test_those_who_embed_the_dashboard_name_their_origin() -> None:
    app = admin_app(
        connection_string=NOWHERE, authorize=everyone_may, frame_ancestors=["https://intranet.example"]
    )
    async with same_origin(app) as http:
        answer = await http.get("/healthz")
    assert "frame-ancestors https://intranet.example" in answer.headers["Content-Security-Policy"]
    assert "X-Frame-Options" not in answer.headers
    for bad in ("*", "https://a.example; script-src *", "javascript:alert(1)"):
        with pytest.raises(ConfigError, match="frame_ancestors"):
            admin_app(connection_string=NOWHERE, authorize=everyone_may, frame_ancestors=[bad])


# -- the origin of changes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "is_refused"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, True),
        ({"Sec-Fetch-Site": "same-site"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"}, True),
        ({"Origin": "http://localhost"}, False),
        ({"Origin": "https://localhost"}, False),
        ({"Origin": "http://evil.example"}, True),
        ({"Origin": "http://localhost.evil.example"}, True),
        ({"Origin": "http://localhost:8000"}, True),
        ({"Origin": "null"}, True),
        ({}, True),
        ({"Authorization": "Bearer made-up"}, True),
    ],
)
@pytest.mark.parametrize("path", [ACTIONS, "/logout", "/login"])
async def test_a_change_must_come_from_a_page_of_the_dashboard(
    app: AdminApp, path: str, headers: dict[str, str], is_refused: bool
) -> None:
    async with client(app) as http:
        answer = await http.post(path, headers=headers, json={})
    assert (answer.status_code == 403) is is_refused
    if is_refused:
        assert "did not come from the dashboard" in answer.text


async def test_reading_needs_no_origin(app: AdminApp) -> None:
    async with client(app) as http:
        assert (await http.get(SESSION, headers={"Sec-Fetch-Site": "cross-site"})).status_code == 200


async def test_a_bearer_token_needs_no_origin_but_the_api_and_json() -> None:
    app = admin_app(connection_string=NOWHERE, authorize=lambda request: Identity(name="ci", how="token"))
    async with client(app) as http:
        assert (await http.post(ACTIONS, json={})).status_code == 400  # the body lacks members
        assert (await http.post(ACTIONS, data={"action": "retry"})).status_code == 415
        assert (await http.post(ACTIONS, content=b"{}")).status_code == 415
        # Also where the handler needs no body.
        assert (await http.post("/api/v1/audit/1/undo", data={"x": "y"})).status_code == 415
        form = await http.post("/audit/1/undo")
        assert form.status_code == 403
        assert "Bearer tokens are for the API" in form.text


def test_origins_are_compared_with_scheme_and_port() -> None:
    assert is_own_origin("https://jobs.example", "jobs.example", "https")
    assert is_own_origin("https://jobs.example", "jobs.example:443", "https")
    assert is_own_origin("https://jobs.example", "jobs.example", "http")  # TLS ends at a proxy
    assert is_own_origin("http://[::1]:5678", "[::1]:5678", "http")
    assert not is_own_origin("http://jobs.example", "jobs.example", "https")
    assert not is_own_origin("https://jobs.example:8443", "jobs.example", "https")
    assert not is_own_origin("https://jobs.example:99999999", "jobs.example", "https")
    assert not is_own_origin("ftp://jobs.example", "jobs.example", "http")
    assert not is_own_origin("https://jobs.example", None, "https")


# -- methods, paths, bodies --------------------------------------------------------------------------------


async def test_unknown_paths_and_methods_are_answered_in_the_frame(app: AdminApp) -> None:
    async with same_origin(app) as http:
        missing = await http.get("/nothing")
        wrong = await http.post("/")
        machine = await http.get("/api/v1/nothing")
        options = await http.options(SESSION)
    assert missing.status_code == 404
    assert "<nav" in missing.text
    assert wrong.status_code == 405
    assert wrong.headers["Allow"] == "GET, HEAD"
    assert "<nav" in wrong.text
    assert machine.headers["Content-Type"] == "application/problem+json"
    assert machine.json() == {
        "type": "about:blank", "title": "There is no such page", "status": 404,
        "detail": "Check the address, or choose a page.",
    }  # fmt: skip
    assert options.status_code == 405


async def test_head_is_get_without_a_body(app: AdminApp) -> None:
    async with same_origin(app) as http:
        answer = await http.head(SESSION)
        stream = await http.head("/api/v1/events")
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["Content-Length"]) > 0
    assert stream.status_code == 405


async def test_a_slash_too_many_leads_to_the_page(app: AdminApp) -> None:
    async with same_origin(app) as http:
        answer = await http.get("/queues/?a=b")
        foreign = await http.get("http://localhost//evil.example/")
    assert answer.headers["Location"] == "/queues?a=b"
    assert foreign.status_code == 404


async def test_bounds_of_requests(app: AdminApp) -> None:
    async with same_origin(app) as http:
        long = await http.get(f"{SESSION}?a={'x' * MAX_QUERY}")
        nul = await http.get("/login?next=%00")
        big = await http.post(ACTIONS, content=b'"' + b"x" * MAX_BODY + b'"',
                              headers={"Content-Type": "application/json"})  # fmt: skip
        deep = await http.post(ACTIONS, content=b"[" * 100_000, headers={"Content-Type": "application/json"})
    assert long.status_code == 414
    assert nul.status_code in (400, 404)
    assert big.status_code == 413
    assert deep.status_code == 400


@pytest.mark.parametrize(
    "name", ["..%2F..%2Fapp.py", "%2e%2e/app.py", "..", "look.css%00.js", "../../../../etc/passwd", ""]
)
async def test_static_files_are_only_those_of_the_folder(app: AdminApp, name: str) -> None:
    path = app.static_url("look.css")
    async with client(app) as http:
        good = await http.get(path)
        bad = await http.get(path.removesuffix("look.css") + name)
    assert good.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert good.headers["X-Content-Type-Options"] == "nosniff"
    assert bad.status_code in (404, 307)
    assert "def " not in bad.text


# -- sign-in of the mounting application -------------------------------------------------------------------


async def test_what_authorize_answers_is_left_as_it_is() -> None:
    async def elsewhere(request: Request) -> Response:
        return PlainTextResponse("sign in over there", 302, headers={"Location": "/accounts/login"})

    app = admin_app(connection_string=NOWHERE, authorize=elsewhere)
    async with client(app) as http:
        answer = await http.get("/")
        static = await http.get(app.static_url("look.css"))
    assert answer.headers["Location"] == "/accounts/login"
    assert "Content-Security-Policy" not in answer.headers
    assert static.status_code == 200


@pytest.mark.parametrize("path", ["/", "/nothing", SESSION, "/api/v1/nothing"])
async def test_none_refuses_everything_also_what_does_not_exist(path: str) -> None:
    app = admin_app(connection_string=NOWHERE, authorize=lambda request: None)
    async with client(app) as http:
        answer = await http.get(path)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("returned", [True, "ada", {"name": "ada"}])
async def test_an_authorize_that_returns_something_else_lets_no_one_in(
    returned: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = admin_app(connection_string=NOWHERE, authorize=lambda request: returned)
    with caplog.at_level(logging.ERROR):
        async with client(app) as http:
            answer = await http.get(SESSION)
    assert answer.status_code == 500
    assert answer.json()["id"] in caplog.text
    assert "authorize returned" in caplog.text
    assert "authorize" not in answer.text


# -- faults ------------------------------------------------------------------------------------------------


async def test_a_fault_has_an_id_in_the_log_and_no_traceback_in_the_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(request: Request) -> Identity:
        raise ZeroDivisionError("secret words")

    app = admin_app(connection_string=NOWHERE, authorize=broken)
    with caplog.at_level(logging.ERROR):
        async with client(app) as http:
            answer = await http.get("/", headers={"Accept": "text/html"})
            machine = await http.get(SESSION)
    assert answer.status_code == machine.status_code == 500
    assert "secret words" not in answer.text + machine.text
    assert "Traceback" not in answer.text + machine.text
    assert machine.json()["id"] in caplog.text
    assert "ZeroDivisionError" in caplog.text


async def test_a_database_that_does_not_answer_keeps_the_frame(
    app: AdminApp, caplog: pytest.LogCaptureFixture
) -> None:
    async with same_origin(app) as http:
        page = await http.get("/", headers={"Accept": "text/html"})
        machine = await http.post(ACTIONS, json={"action": "retry", "ids": [1]})
        ready = await http.get("/readyz")
    assert page.status_code == 503
    assert "<nav" in page.text
    assert "The database does not answer" in page.text
    assert page.headers["Retry-After"] == "5"
    assert machine.status_code == 503
    assert machine.json()["title"] == "The database does not answer"
    assert (ready.status_code, ready.text) == (503, "not ready\n")
    assert "nowhere.invalid" not in page.text + machine.text
    assert "nowhere.invalid" in caplog.text


async def test_the_database_is_ready_when_it_has_the_schema(
    http: httpx.AsyncClient, empty_database_url: str
) -> None:
    answer = await http.get("/readyz")
    assert (answer.status_code, answer.text) == (200, "ready\n")
    app = admin_app(connection_string=empty_database_url, authorize=everyone_may)
    async with same_origin(app) as empty:
        assert (await empty.get("/readyz")).status_code == 503
        missing = await empty.get("/", headers={"Accept": "text/html"})
    await app.aclose()
    assert missing.status_code == 503
    assert "graphile-worker migrate" in missing.text


def test_a_route_without_a_permission_does_not_start() -> None:
    async def handler(call: Any) -> None: ...

    for permission in ((), "", "jobs.everything"):
        with pytest.raises(ConfigError, match="needs a known permission"):
            Route("/x", handler, permission, "X")  # type: ignore[arg-type]


# -- many requests at once ---------------------------------------------------------------------------------


async def test_readiness_is_not_asked_for_every_probe(database_url: str) -> None:
    app = admin_app(connection_string=database_url, authorize=everyone_may)
    async with client(app) as http:
        assert (await http.get("/readyz")).text == "ready\n"
        before = app.databases[0].meter.total
        answers = await asyncio.gather(*(http.get("/readyz") for _ in range(50)))
        assert {answer.text for answer in answers} == {"ready\n"}
        assert app.databases[0].meter.total - before <= 4  # one transaction, if two seconds are over
    await app.aclose()


async def test_one_person_cannot_keep_others_waiting(database_url: str) -> None:
    """Pages of one person wait for a lock; those of another are read meanwhile."""

    def by_header(request: Request) -> Identity:
        return Identity(name=request.headers["x-name"], permissions=PERMISSIONS)

    app = admin_app(connection_string=database_url, authorize=by_header)
    connection: Any = await asyncpg.connect(database_url)
    async with (
        client(app, **{"x-name": "busy"}) as busy,
        client(app, **{"x-name": "other"}) as other,
    ):
        assert (await other.get("/queues")).status_code == 200
        async with connection.transaction():
            await connection.execute("lock table graphile_worker._private_py_audit in access exclusive mode")
            searches = [asyncio.create_task(busy.get("/audit")) for _ in range(12)]
            await asyncio.sleep(0)
            assert (await other.get("/queues")).status_code == 200
            done = sum(search.done() for search in searches)
        answers = await asyncio.gather(*searches)
    assert done < 9, "it waited behind the searches of another person"
    assert {answer.status_code for answer in answers} <= {200, 409, 429}
    await connection.close()
    await app.aclose()
