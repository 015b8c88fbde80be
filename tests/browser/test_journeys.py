"""What people do, as they would do it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from scripts.lively.background import Background

from browser.conftest import Visit
from browser.site import Site, Visitor, database, served
from browser.watched import PATIENCE, expect
from graphile_worker import Runner, parse_crontab, run
from graphile_worker.admin import admin_app
from graphile_worker.admin.security.sign_in import SignIn
from support.server import DatabaseServer

pytestmark = pytest.mark.timeout(900)
PASSWORD = "correct horse battery staple"
ADD_FAILED = """
insert into _private_jobs (task_id, payload, attempts, max_attempts, last_error)
select id, json_build_object('n', n), 1, 1, 'TimeoutError: no answer'
from _private_tasks, generate_series(1, $2::integer) n where identifier = $1
"""
STOP_CLOCK = "() => { const now = Date.now(); Date.now = () => now }"
ADD_ONE = "select id from add_job($1, $2::text::json, max_attempts => 1)"
ALL_FAILED = "select count(*) from _private_jobs where attempts = 1 and locked_at is null"


class Mailbox:
    """A task that fails until it is mended."""

    def __init__(self) -> None:
        self.is_mended = False

    async def send_email(self, payload: Any, helpers: Any) -> None:
        if not self.is_mended:
            raise ValueError("mailbox unavailable")


@contextmanager
def shop(server: DatabaseServer, template: str, background: Background, mailbox: Mailbox) -> Iterator[Site]:
    """A dashboard that asks for a password, and a worker."""
    with database(server, template) as url:
        app = admin_app(connection_string=url, authorize=SignIn(password=PASSWORD))
        with served(background, url, app) as site:
            runner: Runner = background.run(_started(url, mailbox))
            try:
                yield site
            finally:
                background.run(runner.kill())


async def _started(url: str, mailbox: Mailbox) -> Runner:
    return await run(
        connection_string=url,
        task_list={"send_email": mailbox.send_email, "report": mailbox.send_email},
        parsed_cron_items=parse_crontab("0 4 1 1 * report ?id=yearly"),
        handle_signals=False,
        poll_interval=1.0,
    )


def sign_in(visitor: Visitor) -> Any:
    page = visitor.go("/")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    page.wait_for_load_state("load")
    return page


def wait_for_page(page: Any, address: str) -> None:
    """Wait until the page at an address has run its scripts; before, its keys and dialogs do not work."""
    expect(page).to_have_url(re.compile(address))
    page.wait_for_load_state("load")


def wait_until(site: Site, page: Any, statement: str, expected: Any = True) -> None:
    """Wait for something to be so in the database."""
    found = None
    for _ in range(PATIENCE // 200):
        found = site.sql(statement)
        if found == expected:
            return
        page.wait_for_timeout(200)
    pytest.fail(f"{statement}: {found}")


def test_an_incident(
    server: DatabaseServer, template_database: str, background: Background, visit: Visit
) -> None:
    """Find a failed job by a word of its error, read it, mend the cause, retry carefully, see it succeed."""
    mailbox = Mailbox()
    with shop(server, template_database, background, mailbox) as site:
        for number in range(3):
            site.sql(
                "select id from add_job('send_email', $1::text::json, max_attempts => 1)", f'{{"n":{number}}}'
            )
        visitor = visit(site)
        page = sign_in(visitor)
        wait_until(
            site, page, "select count(*) from _private_jobs where attempts = 1 and locked_at is null", 3
        )
        page.keyboard.press("/")
        page.keyboard.type('error:"mailbox"')
        page.keyboard.press("Enter")
        expect(page.locator("tbody tr")).to_have_count(3)
        page.locator("tbody tr a").first.click()
        expect(page.locator("h1")).to_contain_text("permanently failed")
        expect(page.locator("main")).to_contain_text("ValueError: mailbox unavailable")
        expect(page.locator("main")).to_contain_text("in send_email")
        wait_until(site, page, "select count(*) from _private_py_error_groups", 1)
        mailbox.is_mended = True
        page.get_by_role("link", name=re.compile("^Failures")).first.click()
        page.locator("main").get_by_role("link", name=re.compile("mailbox unavailable")).first.click()
        wait_for_page(page, r"/failures/\w+")
        page.get_by_role("link", name="Retry carefully").or_(
            page.get_by_role("button", name="Retry carefully")
        ).first.click()
        page.locator("dialog[open] button[type=submit], dialog[open] button.primary").first.click()
        expect(page).to_have_url(re.compile(r"/operations/\d+"))
        wait_until(site, page, "select count(*) from _private_jobs", 0)
        expect(page.locator("main")).to_contain_text(re.compile("done", re.IGNORECASE))
        visitor.context.close()


def test_pausing_and_running(
    server: DatabaseServer, template_database: str, background: Background, visit: Visit
) -> None:
    """Pause a queue with a reason, resume it; run a schedule now."""
    with shop(server, template_database, background, Mailbox()) as site:
        site.sql("select id from add_job('none', queue_name => 'invoices')")
        visitor = visit(site, size="phone", theme="dark")
        page = sign_in(visitor)
        page.goto("/queue?name=invoices")
        page.get_by_role("link", name="Pause").or_(page.get_by_role("button", name="Pause")).first.click()
        form = page.locator("dialog[open]")
        form.get_by_label("Reason").fill("the bank is down")
        form.get_by_role("button", name=re.compile("Pause")).first.click()
        wait_until(site, page, "select reason like '%the bank is down' from _private_py_queue_holds")
        expect(page.locator(".banners")).to_contain_text("the bank is down")
        page.goto("/queue?name=invoices")
        page.get_by_role("group", name="Actions").get_by_role("button", name="Resume").click()
        wait_until(site, page, "select count(*) from _private_py_queue_holds where job_id is null", 0)
        page.goto("/schedules")
        page.get_by_role("link", name="yearly").first.click()
        wait_for_page(page, r"/schedule\?")
        page.get_by_role("button", name="Run now").first.click()
        page.locator("dialog[open]").get_by_role("button", name=re.compile("Run")).first.click()
        wait_until(
            site, page, "select count(*) from _private_jobs join _private_tasks t on t.id = task_id "
            "where identifier = 'report'", 1,
        )  # fmt: skip
        assert not visitor.overflow()
        visitor.context.close()


def test_a_bulk_retry_stopped_halfway_and_undone(fresh: Site, visit: Visit) -> None:
    fresh.sql("insert into _private_tasks (identifier) values ('bulk')")
    fresh.sql(ADD_FAILED, "bulk", 5000)
    visitor = visit(fresh)
    page = visitor.go("/operations/new?action=retry&q=task:bulk")
    page.get_by_label("Jobs per second at most").fill("20")  # minutes of work, however late it is stopped
    page.get_by_label("Type 5000 to confirm").fill("5000")
    page.locator("main form").get_by_role("button", name=re.compile("Retry")).click()
    wait_for_page(page, r"/operations/\d+")
    wait_until(fresh, page, "select count(*) > 0 from _private_jobs where attempts = 0")
    page.goto("/tasks")
    said = page.locator(".banners", has_text=re.compile(r"Operation \d+ is under way: retry"))
    said.get_by_role("link", name="Open").click()
    wait_for_page(page, r"/operations/\d+")
    expect(page.get_by_text("is under way")).to_have_count(0)  # the page itself says it
    page.get_by_role("button", name="Stop").click()
    wait_until(fresh, page, "select state from _private_py_operations", "stopped")
    changed = fresh.sql("select count(*) from _private_jobs where attempts = 0")
    assert 0 < changed < 5000
    page.reload()
    page.get_by_role("link", name="Undo").or_(page.get_by_role("button", name="Undo")).first.click()
    page.locator("dialog[open]").get_by_role("button", name=re.compile("Undo")).first.click()
    wait_until(fresh, page, "select count(*) from _private_jobs where attempts = 1", 5000)


def test_by_keyboard_alone(fresh: Site, visit: Visit) -> None:
    """From the overview to a failed job, and retry it."""
    fresh.sql("insert into _private_tasks (identifier) values ('mail')")
    fresh.sql(ADD_FAILED, "mail", 2)
    visitor = visit(fresh)
    page = visitor.go("/")
    page.evaluate(STOP_CLOCK)  # the second key counts only soon after the first
    page.keyboard.type("gj")
    wait_for_page(page, r"/jobs$")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    wait_for_page(page, r"/jobs/\d+")
    page.keyboard.press("r")
    page.get_by_role("dialog", name="Retry?").wait_for()
    assert fresh.sql("select count(*) from _private_jobs where attempts = 0") == 0
    page.keyboard.press("Enter")
    wait_until(fresh, page, "select count(*) from _private_jobs where attempts = 0", 1)
    expect(page.get_by_role("status").first).to_contain_text("Retried")  # and hears the next key
    page.keyboard.press("?")
    expect(page.locator("dialog[open]")).to_contain_text("Search")
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)


def test_a_revealed_payload_stays(fresh: Site, visit: Visit) -> None:
    """The address is that of the job: the page refreshes itself, and can be loaded again."""
    job_id = fresh.sql("select id from add_job('mail', '{\"password\": \"hunter2\"}')")
    visitor = visit(fresh)
    page = visitor.go(f"/jobs/{job_id}")
    payload = page.get_by_role("group", name="Payload")
    expect(payload).not_to_contain_text("hunter2")
    page.get_by_role("button", name="Reveal").click()
    expect(payload).to_contain_text("hunter2")
    expect(page).to_have_url(re.compile(rf"/jobs/{job_id}\?"))
    fresh.sql("update _private_jobs set priority = 4711")
    expect(page.locator("main")).to_contain_text("4711")
    expect(payload).to_contain_text("hunter2")
    page.reload()
    expect(payload).to_contain_text("hunter2")
    assert fresh.sql("select count(*) from _private_py_audit where action = 'reveal_payload'") == 1


def test_two_people_at_the_same_job(fresh: Site, visit: Visit) -> None:
    """The second one is told that the job is gone; nothing breaks."""
    fresh.sql("insert into _private_tasks (identifier) values ('mail')")
    fresh.sql(ADD_FAILED, "mail", 1)
    job_id = fresh.sql("select id from _private_jobs")
    first, second = visit(fresh), visit(fresh)
    pages = [visitor.go(f"/jobs/{job_id}") for visitor in (first, second)]
    fresh.sql("delete from _private_jobs")
    with second.faults.expecting(404), first.faults.expecting(404):
        pages[1].get_by_role("group", name="Actions").get_by_role("button", name="Retry").click()
        expect(pages[1].locator("main")).to_contain_text(re.compile("gone|no longer|There is no job"))
        for visitor in (first, second):
            visitor.context.close()


def test_without_script_an_action_asks_first(fresh: Site, visit: Visit) -> None:
    fresh.sql("insert into _private_tasks (identifier) values ('mail')")
    fresh.sql(ADD_FAILED, "mail", 1)
    job_id = fresh.sql("select id from _private_jobs")
    visitor = visit(fresh, java_script_enabled=False)
    page = visitor.go(f"/jobs/{job_id}")
    page.get_by_role("group", name="Actions").get_by_text("More").click()
    page.get_by_role("button", name="Delete").click()
    expect(page.locator("h1")).to_contain_text("Delete")
    page.locator("main form").get_by_role("button", name=re.compile("Delete")).click()
    wait_until(fresh, page, "select count(*) from _private_jobs", 0)
    expect(page.locator(".notices")).to_contain_text("Undo")
