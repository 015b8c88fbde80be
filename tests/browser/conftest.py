"""A real Chromium, a real server and lively data. Started by `make browser`, not by `make test`.

Tests are plain functions: Playwright waits by itself, and the dashboard runs in a thread with its own loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from scripts.lively.background import Background

from browser.site import Site, Visitor, empty_site, hostile_site, lively_site
from browser.watched import PATIENCE
from support.programs import needed
from support.server import DatabaseServer

THEMES = ("light", "dark")
SIZES = {"wide": (1440, 900), "phone": (390, 844)}


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Only on request: Playwright's event loop occupies the thread of asynchronous tests."""
    return None if all("tests/browser" in argument for argument in config.args) else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "browser" in item.path.parts:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The running browser; each test has contexts of its own."""
    path = needed("chromium")
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed; see make browser")
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path)
        yield running
        running.close()


@pytest.fixture(scope="session")
def background() -> Iterator[Background]:
    with Background() as loop:
        yield loop


@pytest.fixture(scope="session")
def lively(server: DatabaseServer, template_database: str, background: Background) -> Iterator[Site]:
    """The dashboard on the shop's database, shared by all tests: do not change what others look at."""
    with lively_site(server, background) as site:
        yield site


@pytest.fixture(scope="session")
def hostile(server: DatabaseServer, background: Background) -> Iterator[Site]:
    """The dashboard on a database in which every text is an attack."""
    with hostile_site(server, background) as site:
        yield site


@pytest.fixture
def fresh(server: DatabaseServer, template_database: str, background: Background) -> Iterator[Site]:
    """The dashboard on a database with nothing in it, for one test."""
    with empty_site(server, background, template_database) as site:
        yield site


Visit = Callable[..., Visitor]


@pytest.fixture
def visit(chromium: Any) -> Iterator[Visit]:
    """`visit(site, size="phone", theme="dark")`: a watched page. What it complained about fails the test."""
    visitors: list[Visitor] = []

    def start(site: Site, *, size: str = "wide", theme: str = "light", **options: Any) -> Visitor:
        width, height = SIZES[size]
        context = chromium.new_context(
            base_url=site.address,
            viewport={"width": width, "height": height},
            color_scheme=theme,
            **options,
        )
        context.set_default_timeout(PATIENCE)
        visitors.append(Visitor(site, context))
        return visitors[-1]

    yield start
    for visitor in visitors:
        visitor.context.close()
    for visitor in visitors:
        visitor.faults.check()
