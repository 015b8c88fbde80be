"""The night on which everything fails: from the first look to the last retry."""

from __future__ import annotations

import re

import pytest
from scripts.lively.background import Background

from browser.conftest import Visit
from browser.test_journeys import ALL_FAILED, Mailbox, shop, sign_in, wait_for_page, wait_until
from browser.watched import expect
from support.server import DatabaseServer

pytestmark = pytest.mark.timeout(900)
JOBS = 5_000
ADD_ALL = """
select count(add_job('send_email', json_build_object('n', n), max_attempts => 1))
from generate_series(1, $1::integer) n
"""


@pytest.mark.parametrize(("size", "theme"), [("wide", "light"), ("phone", "dark")])
def test_thousands_of_jobs_fail_and_are_retried(
    server: DatabaseServer, template_database: str, background: Background, visit: Visit, size: str,
    theme: str,
) -> None:  # fmt: skip
    """The sentence leads to the error, and its button to every job, with one number all the way."""
    mailbox = Mailbox()
    with shop(server, template_database, background, mailbox) as site:
        visitor = visit(site, size=size, theme=theme)
        page = sign_in(visitor)
        expect(page.locator("main h1")).to_contain_text("All well")
        site.sql(ADD_ALL, JOBS)
        wait_until(site, page, ALL_FAILED, JOBS)
        said = page.locator("main h1")  # the page has noticed by itself, within the minute
        expect(said).to_contain_text(re.compile("send_email: .*failures"))
        assert not visitor.overflow()
        wait_until(site, page, f"select errors = {JOBS} from _private_py_error_groups")
        page.get_by_role("link", name="Open the failure").first.click()
        wait_for_page(page, r"/failures/\w+")
        expect(page.get_by_role("region", name="Facts")).to_contain_text("5,000")
        assert not visitor.overflow()
        mailbox.is_mended = True
        page.get_by_role("link", name="Retry carefully").click()
        question = page.locator("dialog[open]")
        expect(question).to_contain_text("5,000 jobs")
        question.get_by_label("Then jobs per second").fill("1000")
        question.get_by_label("Type 5000 to confirm").fill("5000")
        question.locator("button[type=submit], button.primary").first.click()
        wait_for_page(page, r"/operations/\d+")
        wait_until(site, page, "select count(*) from _private_jobs", 0)
        expect(page.locator("main")).to_contain_text("5,000 of 5,000 jobs changed.")
        assert not visitor.overflow()
        page.goto("/failures")
        row = page.locator("tbody tr").first
        expect(row).to_contain_text(re.compile("0 failed" if size == "phone" else r"\b0\b"))
        visitor.context.close()
