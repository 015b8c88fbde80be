"""Requests as an attacker writes them: no value of any parameter is more than a wrong value.

Each parameter gets every third value, each route another third; `HOSTILE_STEP=1` has all (`make fuzz`).
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx
import msgspec
import pytest

from graphile_worker import make_worker_utils
from graphile_worker.admin import AdminApp, Database, SignIn, admin_app, everyone_may, standalone
from graphile_worker.admin.jobs.listing import encode_cursor
from graphile_worker.admin.standalone import DashboardServer, listen
from graphile_worker.admin.table import ROUTES
from graphile_worker.admin.web.routes import Route
from graphile_worker.admin.web.show import csv_cell
from support.working import PATIENCE

from .callers import NOWHERE, client, example_path, same_origin

STEP = int(os.environ.get("HOSTILE_STEP", "3"))
HUGE = "9" * 30
NASTY = (
    "%00", "a%00b", "%ff", "%ed%a0%80", "%0d%0aX-Injected:%201", "%", "-1", "0", HUGE, "9" * 5000, "-" + HUGE,
    "1e400", "NaN", "%D9%A1", "a" * 5000, "'", "%22", "%5c", "_%25", "<script>", "null", "%7B%7D", "infinity",
    "0001-01-01", "9999-12-31T23:59:59-14:00", "1..", "5..1", f">{HUGE[:19]}", "payload.%00:1",
    "+9999999999999y", "1h..99999999999999h", "//evil.example",
)  # fmt: skip
CURSORS = tuple(
    encode_cursor(kind, *values)
    for kind in ("newest", "oldest", "run_order")
    for values in ((2**64,), ("a",), (0, "nan", 1), (0, "1e999", 2**63), (99999, "0", 1))
)
FILTERS = ("payload.a", "payload.password", "payload.%00", "payload.", "payload." + "a." * 90 + "a")


@pytest.fixture
async def app(database_url: str) -> AsyncIterator[AdminApp]:
    async with make_worker_utils(connection_string=database_url) as utils:
        for number in range(3):
            await utils.add_job("send_email", {"a": number}, queue_name="mail", job_key=f"k{number}")
    app = admin_app(connection_string=database_url, authorize=everyone_may)
    yield app
    await app.aclose()


@pytest.fixture
async def browser(app: AdminApp) -> AsyncIterator[httpx.AsyncClient]:
    async with same_origin(app) as http:
        yield http


def reading(route: Route) -> bool:
    return route.method == "GET" and not route.streams


def parameters(route: Route) -> list[str]:
    found = [field.encode_name for field in msgspec.structs.fields(route.query)] if route.query else ["next"]
    return [*found, *(FILTERS if "q" in found and "state" in found else ())]


async def answered(http: httpx.AsyncClient, path: str) -> str:
    """A complaint; empty if the answer is a sensible one."""
    try:
        answer = await http.get(path)
    except httpx.InvalidURL:
        return ""
    is_fault = answer.status_code >= 500 or "x-injected" in answer.headers
    return f"{answer.status_code} {path[:200]}: {answer.text[:300]}" if is_fault else ""


@pytest.mark.parametrize("part", range(4))
async def test_every_parameter_takes_every_value(browser: httpx.AsyncClient, part: int) -> None:
    complaints: list[str] = []
    for place, route in enumerate(filter(reading, ROUTES)):
        if place % 4 != part:
            continue
        path = example_path(route)
        for number, name in enumerate(parameters(route)):
            values = (*NASTY, *CURSORS) if name in ("after", "before") else NASTY
            some = values[(place + number) % STEP :: STEP]
            complaints += [await answered(browser, f"{path}?{name}={value}") for value in some]
    assert [each for each in complaints if each] == []


async def test_every_path_takes_every_value(browser: httpx.AsyncClient) -> None:
    complaints: list[str] = []
    for route in ROUTES:
        if "{" not in route.path or not reading(route):
            continue
        before, _, rest = route.path.partition("{")
        after = rest.partition("}")[2]
        complaints += [await answered(browser, f"{before}{value}{after}") for value in NASTY]
    assert [each for each in complaints if each] == []


WRITING = [route for route in ROUTES if route.method != "GET"]
BODIES = (
    b"", b"\0", b"\xff\xfe", b"null", b"[]", b"1", b'"a"', b"{", b'{"a":' * 100_000, b"[" * 100_000,
    b'{"ids":[9999999999999999999999]}', b'{"ids":["1"],"action":"retry"}',
    b'{"action":"retry","ids":[-1,0]}', b'{"action":"retry","ids":[9223372036854775808]}',
    b'{"name":"\\u0000"}', b'{"name":"\\ud800"}',
    b'{"id":"\\u0000"}', b'{"identifier":"\\u0000"}', b'{"task":"\\u0000","payload":{"a":"\\u0000"}}',
    b'{"task":"a","run_at":"9999-12-31T23:59:59-14:00"}', b'{"task":"a","priority":99999999999}',
    b'{"payload":' + b"[" * 20_000 + b"]" * 20_000 + b',"revision":0,"task":"a"}',
    b'{"action":"retry","filter":"payload.\\u0000:1"}',
    b'{"action":"retry","filter":"id:>99999999999999999999"}',
    b'{"action":"reschedule","ids":[1],"run_at":"0001-01-01T00:00:00+14:00"}',
    b'{"name":"a","concurrency":1e400}',
    b'{"name":"a","until":"9999-12-31T23:59:59-14:00"}', b'{"name":"a","until":"99999999999999y"}',
)  # fmt: skip
FIELDS = (
    b"", b"a=%00", b"%00=a", b"name=%00", b"id=%ff", b"action=retry&ids=99999999999999999999",
    b"action=retry&ids=" + b"9" * 5000,
    b"action=reschedule&ids=1&run_at=0001-01-01T00:00%2b14:00&confirmed=1",
    b"name=a&until=9999-12-31T23:59", b"name=a&period=99999999999999999999", b"identifier=%00",
    b"&" * 1000,
    b"a=1&" * 1000, b"task=a&payload=" + b"[" * 20_000, b"task=%00",
    b"payload=1&revision=99999999999999999999",
    b"task=a&run_at=9999-12-31T23:59:59-14:00", b"action=delete&q=payload.%00:1&confirmed=1",
    b"rate=nan&action=retry",
)  # fmt: skip


async def test_every_body_is_answered(browser: httpx.AsyncClient) -> None:
    complaints = []
    for route in WRITING:
        kind = "application/json" if route.is_api else "application/x-www-form-urlencoded"
        for body in BODIES if route.is_api else FIELDS:
            answer = await browser.request(
                route.method, example_path(route), content=body, headers={"Content-Type": kind}
            )
            if answer.status_code >= 500:
                complaints.append(f"{answer.status_code} {route.path} {body[:80]!r}: {answer.text[:300]}")
    assert complaints == []


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "null"},
        {"Origin": "http://localhost.evil.example"},
        {"Origin": "http://localhost:81"},
    ],
)
async def test_no_other_site_changes_anything(app: AdminApp, headers: dict[str, str]) -> None:
    """Every route that is not GET, also those that seem harmless, such as signing out."""
    async with client(app, **headers) as http:
        for route in WRITING:
            for type in ("application/json", "text/plain", "application/x-www-form-urlencoded"):
                answer = await http.request(
                    route.method, example_path(route), content=b"{}", headers={"Content-Type": type}
                )
                assert answer.status_code == 403, f"{route.method} {route.path} {type}"


@pytest.mark.parametrize(
    ("headers", "is_allowed"),
    [
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Referer": "http://localhost/jobs/1"}, True),
        ({"Referer": "http://localhost:81/"}, False),
        ({}, False),
    ],
)
async def test_no_other_site_makes_people_reveal_payloads_or_uses_up_their_streams(
    app: AdminApp, headers: dict[str, str], is_allowed: bool
) -> None:
    assert {route.path for route in ROUTES if route.own_pages_only} == {
        "/api/v1/events",
        "/jobs/{id:int}/edit",
    }
    async with client(app, **headers) as http:
        assert (await http.get("/jobs/1/edit")).status_code == (200 if is_allowed else 403)
        assert (await http.get("/api/v1/events?topics=unknown")).status_code == (400 if is_allowed else 403)
        entries = (await http.get("/api/v1/audit")).json()["items"]
    assert [entry["action"] for entry in entries] == (["reveal_payload"] if is_allowed else [])


async def test_names_cannot_change_the_direction_of_text(app: AdminApp, database_url: str) -> None:
    turned = "a\u202eb\u2066c"
    async with make_worker_utils(connection_string=database_url) as utils:
        job = await utils.add_job(turned, {}, queue_name=turned)
    async with same_origin(app) as http:
        body = {"name": turned, "reason": f"reason {turned}"}
        assert (await http.post("/api/v1/queues/pause", json=body)).status_code == 200
        paths = ("/", "/jobs", f"/jobs/{job.id}", "/tasks", "/queues", "/audit", f"/queue?name={turned}",
                 f"/task?name={turned}", "/summary")  # fmt: skip
        for path in paths:
            text = (await http.get(path)).text
            fields = re.sub(r'(?:value|data-copy)="[^"]*"', "", text)
            assert "\u202e" not in fields, fields[max(0, fields.find("\u202e") - 150) :][:200]
            assert "\u2066" not in fields, path
            if path not in ("/", "/summary"):
                assert "[U+202E]" in text, path
        page = (await http.get(f"/queue?name={turned}")).text
        assert f'name="name" value="{turned}"' in page  # forms are about the queue itself
        found = (await http.get("/api/v1/queues")).text
        assert turned in found


@pytest.mark.parametrize(
    "text",
    ["=1+1", "\n=1+1", " =1+1", "\t=1", "\r=1", "＝1+1", "＋1", "－1+1", "＠SUM(A1)", "@SUM(A1)", "-1+1"],
)
def test_spreadsheets_take_no_cell_for_a_formula(text: str) -> None:
    assert csv_cell(text) == f"'{text}"
    assert [csv_cell(each) for each in ("-5", "a=b", "", "x\n=1", -1.5)] == ["-5", "a=b", "", "x\n=1", "-1.5"]


async def test_spreadsheets_know_the_encoding(browser: httpx.AsyncClient) -> None:
    assert (await browser.get("/jobs/export?format=csv")).content.startswith(b"\xef\xbb\xbfid,")


# -- half requests -----------------------------------------------------------------------------------------


@asynccontextmanager
async def served(app: AdminApp) -> AsyncIterator[int]:
    """The dashboard on a real socket; its port."""
    server = DashboardServer(app, app)
    with listen("127.0.0.1", 0) as endpoint:
        serving = asyncio.create_task(server.run_on(endpoint))
        try:
            yield endpoint.getsockname()[1]
        finally:
            server.stop()
            await asyncio.wait_for(serving, PATIENCE)


HALVES = (
    b"",
    b"GET / HT",
    b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nX-A: ",
    b"POST /login HTTP/1.1\r\nHost: a\r\nSec-Fetch-Site: same-origin\r\nContent-Length: 99\r\n\r\nuser=a",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HT",
)


async def test_half_requests_are_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standalone, "REQUEST_WITHIN", 0.5)
    app = AdminApp([Database(connection_string=NOWHERE)], authorize=SignIn(password="x"))
    async with served(app) as port:
        for half in HALVES:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(half)
            async with asyncio.timeout(PATIENCE):
                await reader.read(-1)  # the server ends it
            writer.close()
        # A byte now and then does not help.
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(PATIENCE):
            writer.write(b"GET / HTTP/1.1\r\n")
            while not reader.at_eof():
                writer.write(b"X")
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1), 0.1)
        writer.close()


async def test_others_are_served_beside_hundreds_of_half_requests() -> None:
    app = AdminApp([Database(connection_string=NOWHERE)], authorize=SignIn(password="x"))
    async with served(app) as port:
        writers = []
        try:
            for number in range(400):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(HALVES[number % len(HALVES)])
                writers.append(writer)
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as http:
                for _ in range(5):
                    assert (await http.get("/healthz")).status_code == 200
        finally:
            for writer in writers:
                writer.close()


@pytest.mark.parametrize(
    "path",
    ["/~", "/~/", "/~nowhere/jobs", "/~../jobs", "/~a/~a/jobs", "/jobs/..%2f..%2fetc", "/static/../app.py",
     "/static/x/%2e%2e%2fapp.py", "//", "///jobs", "/jobs//", "/JOBS", "/jobs%00", "/%ff", "/api/v1",
     "/api/v1/",
     "/jobs.json.json", "/jobs/1.json/", "/.json", "/jobs/%D9%A1", "/jobs/-1", "/jobs/+1", "/jobs/1e3"],
)  # fmt: skip
async def test_tricks_with_paths_lead_nowhere(browser: httpx.AsyncClient, path: str) -> None:
    for method in ("GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "POST"):
        answer = await browser.request(method, f"http://localhost{path}")
        assert answer.status_code < 500, f"{method} {path}"
        assert "evil" not in answer.headers.get("location", "")
        assert answer.headers["x-content-type-options"] == "nosniff"
