"""Open pages over time: the stream of a hidden tab, a database that goes and comes back, times, no script."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import pytest
from scripts.lively.background import Background
from scripts.lively.fill import fill

from browser.conftest import SIZES, Visit
from browser.site import Site, database, served
from browser.watched import PATIENCE, expect
from graphile_worker.admin import admin_app, everyone_may
from graphile_worker.admin.live.hub import hubs_of
from graphile_worker.admin.web.show import instant, typed_time
from graphile_worker.database.embedded import EmbeddedPostgres
from graphile_worker.testing.scratch import SETTINGS, scratch_folder
from support.command_line import COMMAND, clean_environment
from support.server import DatabaseServer, chosen_programs

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
    page.locator(".live").click()
    wait_for_streams(page, fresh, 0)
    page.locator(".live").click()
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


PASSWORD = "correct horse battery staple"


class Process:
    """The dashboard in a process of its own, which a test may stop, continue, kill and start again."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.address = "http://127.0.0.1:0"
        self.start()

    def start(self) -> None:
        place = urlsplit(self.address).netloc
        self._process = subprocess.Popen(
            [*COMMAND, "admin", "-c", self.url, "--listen", place],
            stdout=subprocess.PIPE,
            env=clean_environment(
                GRAPHILE_WORKER_ADMIN_SECRET="s" * 40, GRAPHILE_WORKER_ADMIN_PASSWORD=PASSWORD
            ),
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        self.address = re.search(r"http://[\d.]+:\d+", line)[0]  # type: ignore[index]

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("end", ["hung", "killed"])
def test_a_page_says_that_its_server_is_gone(
    server: DatabaseServer, template_database: str, background: Background, visit: Visit, end: str, size: str
) -> None:
    """Whether the process hangs or is killed, it says so in words, with the time; and goes on by itself."""
    with database(server, template_database) as url:
        process = Process(url)
        try:
            visitor = visit(Site(background, url, process.address, None), size=size)
            page = visitor.go("/")
            page.get_by_label("Password").fill(PASSWORD)
            page.get_by_role("button", name="Sign in").click()
            expect(page.locator(".live")).to_have_attribute("data-live", "live")
            page.goto("/failures")  # a page that asks for no samples hears of the server, too
            expect(page.locator(".live")).to_have_attribute("data-live", "live")
            expect(page.locator("body")).to_have_attribute("data-stale-after", "20")
            with visitor.faults.offline():
                page.evaluate("() => { document.body.dataset.staleAfter = '7' }")
                page.locator(".live").click()
                page.locator(".live").click()
                if end == "hung":
                    process.signal(signal.SIGSTOP)
                else:
                    process.kill()
                said = page.locator("[data-stale]")
                text = r"The dashboard does not answer\. The page shows the state of \d\d:\d\d:\d\d\."
                expect(said).to_have_text(re.compile(text))
                expect(page.locator(".live span")).to_be_visible()
                expect(page.locator(".live span")).to_have_text("no answer")
                if end == "hung":
                    process.signal(signal.SIGCONT)
                else:
                    process.start()
                expect(said).to_be_hidden()
                expect(page.locator(".live")).to_have_attribute("data-live", "live")
            visitor.context.close()
        finally:
            process.kill()


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


FORMS = {
    "/queues/pause?name={}": "select queue_name from _private_job_queues",
    "/jobs/actions?action=reschedule&ids={}": "select id from _private_jobs where attempts = max_attempts",
    "/operations/new?action=reschedule&q=task:send_email": "select 1",
    "/failures/{}/actions?action=reschedule": "select fingerprint from _private_py_error_groups",
    "/jobs/new": "select 1",
}
"""The forms that take a time, and what they are about."""
TYPED = {
    "Europe/Berlin": ("2030-01-31T12:00", "2030-07-31T12:00", "2030-03-31T02:30", "2030-10-27T02:30"),
    "America/New_York": ("2030-01-31T12:00", "2030-07-31T12:00", "2030-03-10T02:30", "2030-11-03T01:30"),
}
"""In winter, in summer, in the hour that is skipped, and in the one that comes twice."""


@pytest.mark.parametrize("zone", TYPED)
def test_forms_say_which_time_was_typed(lively: Site, visit: Visit, zone: str) -> None:
    """Beside the field is the moment that the server reads."""
    visitor = visit(lively, timezone_id=zone)
    visitor.go("/about")  # the server knows the zone from the second page on
    for path, statement in FORMS.items():
        page = visitor.go(path.format(lively.sql(f"{statement} limit 1")))
        field = page.locator("main input[type=datetime-local]").first
        hint = page.locator(f"#{field.get_attribute('aria-describedby')}")
        for text in TYPED[zone]:
            field.fill(text)
            at = typed_time(text, ZoneInfo(zone))
            expect(hint).to_contain_text(instant(at))
            expect(hint).to_contain_text(f"{at.astimezone(UTC).astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M:%S}")
    page.evaluate("() => document.activeElement.blur()")
    page.keyboard.press("t")
    expect(hint).to_contain_text(instant(typed_time(text, ZoneInfo("UTC"))))
    assert zone not in hint.inner_text()


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
