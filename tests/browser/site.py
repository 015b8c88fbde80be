"""The dashboard on a real port over a database, and a visitor who looks at it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import asyncpg
from scripts.lively.background import Background
from scripts.lively.fill import fill
from scripts.lively.serving import serving
from scripts.lively.workers import working

from browser.watched import Faults
from graphile_worker.admin import admin_app, everyone_may
from support.server import DatabaseServer

SCHEMA = "graphile_worker"
SLOWDOWN = int(os.environ.get("BROWSER_SLOWDOWN", "1"))
"""How many times slower pages run. 20 finds tests that look before the page has changed."""


class Site:
    """A served dashboard and its database."""

    def __init__(self, background: Background, url: str, address: str, app: Any) -> None:
        self.background = background
        self.url = url
        self.address = address
        self.app = app

    def sql(self, statement: str, *values: Any) -> Any:
        """The first column of the first row."""
        return self._with_connection(lambda connection: connection.fetchval(statement, *values))

    def rows(self, statement: str, *values: Any) -> list[Any]:
        return self._with_connection(lambda connection: connection.fetch(statement, *values))

    def _with_connection(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        async def connected() -> Any:
            connection = await asyncpg.connect(self.url, server_settings={"search_path": SCHEMA})
            try:
                return await work(connection)
            finally:
                await connection.close(timeout=60)

        return self.background.run(connected())


class Visitor:
    """A browser context with its page."""

    def __init__(self, site: Site, context: Any) -> None:
        self.site = site
        self.context = context
        self.faults = Faults(site.address)
        self.faults.watch(context)
        self.page = context.new_page()
        if SLOWDOWN > 1:
            devtools = context.new_cdp_session(self.page)
            devtools.send("Emulation.setCPUThrottlingRate", {"rate": SLOWDOWN})

    def go(self, path: str) -> Any:
        """Open a page; returns it when its content is there."""
        self.page.goto(path, wait_until="load")
        return self.page

    def overflow(self) -> str:
        """What makes the document wider than its window; empty if nothing does."""
        return str(self.page.evaluate(FIND_OVERFLOW))


FIND_OVERFLOW = """() => {
  const root = document.documentElement
  if (root.scrollWidth <= root.clientWidth) return ""
  const wide = [...document.querySelectorAll("body *")].filter(
    element => element.getBoundingClientRect().right > root.clientWidth + 1)
  const names = wide.slice(-5).map(element => `${element.tagName}.${element.getAttribute("class")}`)
  return `${root.scrollWidth} px wide: ${names.join(", ")}`
}"""


@contextmanager
def served(
    background: Background, url: str, app: Any, *, host: str = "127.0.0.1", workers: bool = False
) -> Iterator[Site]:
    """Serve an application until the block ends."""
    stack = AsyncExitStack()

    async def start() -> str:
        if workers:
            await stack.enter_async_context(working(url))
        return await stack.enter_async_context(serving(app, host=host))

    address = background.run(start())
    try:
        yield Site(background, url, address, app)
    finally:
        background.run(stack.aclose())


@contextmanager
def database(server: DatabaseServer, template: str | None = None) -> Iterator[str]:
    name = server.create_database(template=template)
    try:
        yield server.url(name)
    finally:
        server.drop_database(name)


@contextmanager
def lively_site(server: DatabaseServer, background: Background) -> Iterator[Site]:
    with database(server) as url:
        background.run(fill(url))
        app = admin_app(connection_string=url, authorize=everyone_may, environment="production")
        with served(background, url, app, workers=True) as site:
            yield site


@contextmanager
def hostile_site(server: DatabaseServer, background: Background) -> Iterator[Site]:
    from browser.hostile import write_hostile

    with database(server) as url:
        background.run(write_hostile(url))
        app = admin_app(connection_string=url, authorize=everyone_may, environment="<b>test</b>")
        with served(background, url, app) as site:
            yield site


@contextmanager
def empty_site(server: DatabaseServer, background: Background, template: str) -> Iterator[Site]:
    with database(server, template) as url:
        app = admin_app(connection_string=url, authorize=everyone_may)
        with served(background, url, app) as site:
            yield site
