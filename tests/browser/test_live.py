"""Open pages over time: the stream of a hidden tab, a database that goes and comes back, times, no script."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from scripts.lively.background import Background
from scripts.lively.fill import fill

from browser.conftest import Visit
from browser.site import Site, served
from browser.watched import PATIENCE, expect
from graphile_worker.admin import admin_app, everyone_may
from graphile_worker.admin.live.hub import hubs_of
from graphile_worker.database.embedded import EmbeddedPostgres
from graphile_worker.testing.scratch import SETTINGS, scratch_folder
from support.server import chosen_programs

SET_VISIBILITY = """state => {
  Object.defineProperty(document, "hidden", {get: () => state === "hidden", configurable: true})
  Object.defineProperty(document, "visibilityState", {get: () => state, configurable: true})
  document.dispatchEvent(new Event("visibilitychange"))
}"""
"""A headless browser shows every tab, so the page is told what it would be told otherwise."""


def streams(site: Site) -> int:
    """How many event streams the server has open."""

    async def count() -> int:
        return hubs_of(site.app).of(site.app.databases[0]).streams

    return site.background.run(count())


def wait_for_streams(page: Any, site: Site, count: int) -> None:
    for _ in range(PATIENCE // 50):
        if streams(site) == count:
            return
        page.wait_for_timeout(50)
    pytest.fail(f"{streams(site)} streams are open, not {count}")


def test_a_hidden_tab_has_no_stream(fresh: Site, visit: Visit) -> None:
    visitor = visit(fresh)
    page = visitor.go("/")
    wait_for_streams(page, fresh, 1)
    page.evaluate(SET_VISIBILITY, "hidden")
    wait_for_streams(page, fresh, 0)
    page.evaluate(SET_VISIBILITY, "visible")
    wait_for_streams(page, fresh, 1)
    page.keyboard.press("Space")
    wait_for_streams(page, fresh, 0)
    page.keyboard.press("Space")
    wait_for_streams(page, fresh, 1)
    page.close()


@contextmanager
def own_server(background: Background) -> Iterator[tuple[EmbeddedPostgres, Site]]:
    """A dashboard whose database the test may stop."""
    with scratch_folder() as folder:
        embedded = EmbeddedPostgres(folder, settings=SETTINGS, **chosen_programs())
        embedded.start()
        try:
            background.run(fill(embedded.url()))
            app = admin_app(connection_string=embedded.url(), authorize=everyone_may)
            with served(background, embedded.url(), app) as site:
                yield embedded, site
        finally:
            embedded.stop()


def test_a_page_survives_its_database(background: Background, visit: Visit) -> None:
    """It keeps what it shows, says since when, and goes on by itself."""
    with own_server(background) as (embedded, site):
        visitor = visit(site)
        page = visitor.go("/")
        expect(page.locator(".live")).to_have_attribute("data-live", "live")
        shown = page.locator("main h1").inner_text()
        with visitor.faults.offline():
            embedded.stop()
            stale = page.locator("[data-stale]")
            expect(stale).to_be_visible()
            expect(stale).to_contain_text(re.compile(r"\d\d:\d\d:\d\d"))
            assert page.locator("main h1").inner_text() == shown
            answer = page.request.get("/tasks")
            assert answer.status == 503
            assert "Traceback" not in answer.text()
            embedded.start()
            expect(stale).to_be_hidden()
            expect(page.locator(".live")).to_have_attribute("data-live", "live")
        expect(page.locator("main h1")).to_be_visible()
        visitor.context.close()


def test_times_are_in_the_zone_of_the_viewer(lively: Site, visit: Visit) -> None:
    visitor = visit(lively, timezone_id="America/New_York", locale="en-US")
    page = visitor.go("/jobs")
    expect(page.locator("footer")).to_contain_text("America/New_York")
    page.reload()  # the server knows it too by now
    expect(page.locator("body")).to_have_attribute("data-zone", "America/New_York")
    charts = visit(lively, timezone_id="Asia/Tokyo").go("/")  # at the first visit, without a reload
    expect(charts.locator("figure.chart").first).to_have_attribute("data-zone", "Asia/Tokyo")
    page.get_by_text("Times in UTC").first.evaluate("button => button.click()")
    expect(page.locator("footer")).to_contain_text("UTC")


def test_pages_can_be_read_without_script(lively: Site, visit: Visit) -> None:
    visitor = visit(lively, java_script_enabled=False)
    page = visitor.go("/jobs?q=state:failed")  # others may be gone before they are looked at
    expect(page.locator("noscript")).to_be_visible()
    page.locator("tbody a").first.click()
    expect(page).to_have_url(re.compile(r"/jobs/\d+"))
    expect(page.locator("h1")).to_be_visible()
    page.get_by_role("link", name="Jobs", exact=True).first.click()
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody tr").first).to_be_visible()
