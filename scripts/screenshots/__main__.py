"""`python -m scripts.screenshots`: every page with lively data, for the documentation and for looking at.

--all       both sizes and both themes of every page (default: what the documentation shows)
--folder    where they are written (default: docs/admin/images)
--only TEXT pages whose name contains the text
--demo      instead three pages of `graphile-worker demo`, which takes three minutes
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg

from graphile_worker.admin import admin_app
from graphile_worker.admin.table import ROUTES
from graphile_worker.database.embedded import EmbeddedPostgres

from ..lively.addresses import addresses, is_page, subject_of
from ..lively.chromium import find_chromium
from ..lively.fill import fill
from ..lively.people import ada_may
from ..lively.serving import serving
from ..lively.workers import working
from .demo import DEMO_SIZE, INSTALLED, RENAME, demo_pages, running_demo

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "admin" / "images"
SIZES = {"wide": (1440, 900), "phone": (390, 844)}
THEMES = ("light", "dark")
IN_THE_DOCUMENTATION = {("wide", "light")}
SHOWN = frozenset({
    "overview", "jobs", "job", "failures", "failure", "tasks", "task", "queues", "workers", "schedules",
    "doctor", "audit", "operations-new", "jobs-new", "about",
})  # fmt: skip
"""Pages that the documentation shows."""
ALSO = {("overview", "wide", "dark"), ("overview", "phone", "light"), ("job", "phone", "dark")}
SETTLED = 500  # milliseconds after the page has loaded
ZONE = "Europe/Berlin"
AS_A_PERSON: dict[str, Any] = {"timezone_id": ZONE, "locale": "en-GB", "reduced_motion": "reduce"}
SETTINGS = {"max_wal_size": "1GB"}


@asynccontextmanager
async def lively_dashboard() -> AsyncIterator[tuple[str, str]]:
    """A server with lively data, workers and the dashboard; the addresses of database and dashboard."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gw-shots-")))
        folder.chmod(0o711)  # for root, the server runs as another user, who must be able to enter
        server = stack.enter_context(EmbeddedPostgres(folder / "data", settings=SETTINGS))
        url = server.url()
        await fill(url)
        await stack.enter_async_context(working(url))
        app = admin_app(connection_string=url, authorize=ada_may, environment="production")
        yield url, await stack.enter_async_context(serving(app))


async def _pages(url: str) -> list[tuple[str, str]]:
    """Name and address of every page."""
    connection = await asyncpg.connect(url, server_settings={"search_path": "graphile_worker"})
    found = []
    try:
        for path in sorted({route.path for route in ROUTES if is_page(route)}):
            subject = subject_of(path)
            if subject is None and "{" in path:
                continue
            values = [] if subject is None else [await connection.fetchval(f"{subject[1]} limit 1")]
            if values == [None]:
                continue
            found.append((_name(path), addresses(path, subject[0], values)[0] if subject else path))
    finally:
        await connection.close()
    return found


def _name(path: str) -> str:
    """`/jobs/{id}` is `job`, `/` is `overview`."""
    *folders, last = path.strip("/").split("/")
    if last.startswith("{"):
        return folders[-1].removesuffix("s")
    return "-".join([*folders, last]) or "overview"


def _wanted(every: bool) -> Iterator[tuple[str, str]]:
    for size in SIZES:
        for theme in THEMES:
            if (
                every
                or (size, theme) in IN_THE_DOCUMENTATION
                or any(also[1:] == (size, theme) for also in ALSO)
            ):
                yield size, theme


async def take(folder: Path, *, every: bool, only: str) -> int:
    """Write the files; how many."""
    from playwright.async_api import async_playwright

    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    async with lively_dashboard() as (url, address), async_playwright() as playwright:
        browser: Any = await playwright.chromium.launch(executable_path=find_chromium())
        pages = [(name, path) for name, path in await _pages(url) if only in name]
        for size, theme in _wanted(every):
            width, height = SIZES[size]
            context = await browser.new_context(
                base_url=address, viewport={"width": width, "height": height}, color_scheme=theme,
                **AS_A_PERSON,
            )  # fmt: skip
            await context.add_cookies([{"name": "gw_zone", "value": quote(ZONE, safe=""), "url": address}])
            for name, path in pages:
                is_shown = (size, theme) in IN_THE_DOCUMENTATION and name in SHOWN
                if every or is_shown or (name, size, theme) in ALSO:
                    await _shoot(context, path, folder / f"{name}-{size}-{theme}.png", is_full=every)
                    count += 1
            await context.close()
        await browser.close()
    return count


async def take_demo(folder: Path) -> int:
    """Write the pictures of the demo; how many."""
    from playwright.async_api import async_playwright

    async with running_demo() as address, async_playwright() as playwright:
        browser: Any = await playwright.chromium.launch(executable_path=find_chromium())
        context = await browser.new_context(
            base_url=address, viewport=DEMO_SIZE, color_scheme="light", **AS_A_PERSON
        )
        pages = await demo_pages(address)
        for name, path in pages.items():
            await _shoot(context, path, folder / f"{name}.png", is_full=False)
        await browser.close()
    return len(pages)


async def _shoot(context: Any, path: str, file: Path, *, is_full: bool) -> None:
    page = await context.new_page()
    await page.goto(path, wait_until="load")
    await page.wait_for_timeout(SETTLED)
    await page.evaluate(RENAME, [str(ROOT / "src"), INSTALLED])
    await page.screenshot(path=file, full_page=is_full)
    await page.close()
    print(file.name, f"{file.stat().st_size // 1024} KB")


def main() -> int:
    parser = argparse.ArgumentParser(description="Screenshots of the dashboard with lively data.")
    parser.add_argument("--all", action="store_true", help="both sizes and themes of every page, whole pages")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--only", default="", help="only pages whose name contains this text")
    parser.add_argument("--demo", action="store_true", help="only pages of `graphile-worker demo`")
    arguments = parser.parse_args()
    if find_chromium() is None:
        print("no Chromium was found; install it, or set CHROMIUM", file=sys.stderr)
        return 1
    logging.getLogger("graphile_worker").setLevel(logging.CRITICAL)  # its workers fail on purpose
    if arguments.demo:
        count = asyncio.run(take_demo(arguments.folder))
    else:
        count = asyncio.run(take(arguments.folder, every=arguments.all, only=arguments.only))
    print(f"{count} screenshots in {arguments.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
