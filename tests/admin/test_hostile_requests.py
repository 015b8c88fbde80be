"""Requests as an attacker writes them: no value of any parameter is more than a wrong value."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest

from graphile_worker import make_worker_utils
from graphile_worker.admin import AdminApp, admin_app, everyone_may
from graphile_worker.admin.cursors import encode_cursor
from graphile_worker.admin.routes import Route
from graphile_worker.admin.table import ROUTES

from .callers import example_path, same_origin

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
        for name in parameters(route):
            values = (*NASTY, *CURSORS) if name in ("after", "before") else NASTY
            complaints += [await answered(browser, f"{path}?{name}={value}") for value in values]
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
