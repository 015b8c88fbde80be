"""Requests as an attacker writes them: no value of any parameter is more than a wrong value.

Each parameter gets every third value, each route another third; `HOSTILE_STEP=1` has all (`make fuzz`).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest

from graphile_worker import make_worker_utils
from graphile_worker.admin import AdminApp, admin_app, everyone_may
from graphile_worker.admin.jobs.search import encode_cursor
from graphile_worker.admin.table import ROUTES
from graphile_worker.admin.web.routes import Route

from .callers import client, example_path, same_origin

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
