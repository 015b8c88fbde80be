"""On a phone: every page can be reached, everything can be hit, and nothing fills the screen."""

from __future__ import annotations

import re

import pytest

from browser.conftest import Visit
from browser.pages import address_of, page_paths
from browser.site import Site
from browser.watched import expect
from graphile_worker.admin.web.texts import NAVIGATION

SMALL_TARGETS = """() => {
  const targets = "button, summary, .btn, nav a, .seg a, input:not([type=hidden]), select, td > a, .pager a"
  const area = element => (element.matches("input") && element.closest("label")) || element
  return [...document.querySelectorAll(targets)]
    .filter(element => element.checkVisibility() && !element.closest("pre, .hidden, .skip"))
    .map(element => [element, area(element).getBoundingClientRect()])
    .filter(([element, box]) => box.height < 43.5 || (box.width < 43.5 && !element.matches("td > a")))
    .map(([element, box]) => `${element.outerHTML.slice(0, 120)}: ${box.width} x ${box.height}`)
}"""
ADD_ENTRY = """
insert into _private_py_audit (who, how, origin, action, target, job_ids, details)
values ($1, 'session', '', 'retry', 'job 1', '{}', '{}')
"""
LINES = "element => element.getBoundingClientRect().height / parseFloat(getComputedStyle(element).lineHeight)"


def test_every_page_is_in_the_navigation(lively: Site, visit: Visit) -> None:
    page = visit(lively, size="phone").go("/")
    bar = page.get_by_role("navigation", name="Pages")
    missing = [label for _, label, _, _ in NAVIGATION if not bar.get_by_role("link", name=label).count()]
    bar.get_by_text("More").click()
    for label in missing:
        expect(bar.get_by_role("link", name=label)).to_be_in_viewport(ratio=1)
    bar.get_by_role("link", name="Operations").click()
    expect(page.locator("h1")).to_have_text("Operations")


@pytest.mark.parametrize("path", page_paths())
def test_everything_can_be_hit(lively: Site, visit: Visit, path: str) -> None:
    page = visit(lively, size="phone").go(address_of(lively, path))
    page.locator("html.js").wait_for(state="attached")
    assert page.evaluate(SMALL_TARGETS) == []


def test_a_long_reason_takes_two_lines(fresh: Site, visit: Visit) -> None:
    reason = "the bank is down and nobody knows when it comes back; " * 9
    fresh.sql("select id from add_job('none', queue_name => 'invoices')")
    visitor = visit(fresh, size="phone")
    page = visitor.go("/queues/pause?name=invoices")
    page.get_by_label("Reason").fill(reason[:480])
    page.get_by_role("button", name="Pause").click()
    text = page.locator(".banners summary")
    expect(text).to_contain_text("the bank is down")
    assert text.evaluate(LINES) < 2.5
    text.click()
    assert text.evaluate(LINES) > 5
    assert reason[:480].strip() in text.inner_text()


def test_failures_and_the_audit_can_be_read(lively: Site, visit: Visit) -> None:
    visitor = visit(lively, size="phone")
    page = visitor.go("/failures")
    expect(page.locator("tbody tr").first).to_contain_text(re.compile(r"failed · .* retrying"))
    lively.sql(ADD_ENTRY, "a" * 60)
    page = visitor.go("/audit")
    cell = page.locator("tbody td.phone-cell").first
    expect(cell).to_contain_text("a" * 60)
    assert cell.evaluate("cell => cell.scrollWidth <= cell.clientWidth")


CUT_TEXTS = """() => [...document.querySelectorAll("main .seg > *")]
  .filter(element => element.checkVisibility() && !element.closest("details:not([open])"))
  .filter(element => element.scrollWidth > element.clientWidth + 1
    || element.getBoundingClientRect().right > document.documentElement.clientWidth)
  .map(element => element.textContent)"""


@pytest.mark.parametrize("path", ["/", "/jobs", "/failures", "/task", "/summary"])
def test_tabs_can_be_read(lively: Site, visit: Visit, path: str) -> None:
    """With their counts, without one over the other or beyond the edge."""
    page = visit(lively, size="phone").go(address_of(lively, path))
    page.locator("main .seg").first.wait_for()
    assert page.evaluate(CUT_TEXTS) == []
