"""The browser's part: refreshing in place, live updates, keyboard, dialogs, charts, copying.

The page is real, with its headers and scripts; only what stands inside of `main` is written by the test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from browser.conftest import Visit
from browser.site import Site, Visitor
from browser.watched import expect

HEADING = re.compile(r"<!-- page -->.*?<footer>", re.DOTALL)

Show = Callable[..., None]


@pytest.fixture
def visitor(fresh: Site, visit: Visit) -> Visitor:
    """A visitor whose zone the server knows; at the first visit the page would ask for itself once more."""
    visitor = visit(fresh, timezone_id="Europe/Berlin")
    visitor.context.add_cookies([{"name": "gw_zone", "value": "Europe%2FBerlin", "url": fresh.address}])
    return visitor


@pytest.fixture
def show(visitor: Visitor) -> Iterator[Show]:
    """`show(markup)`: what the overview contains from now on; `status` is that of the answer."""
    now: dict[str, Any] = {}

    def answer(route: Any) -> None:
        found = route.fetch()
        page, count = HEADING.subn(lambda _: f"{now['markup']}<footer>", found.text())
        assert count == 1
        route.fulfill(response=found, body=page, status=now["status"])

    def put(markup: str, *, status: int = 200) -> None:
        now.update(markup=f"<h1>Test</h1>{markup}", status=status)

    put("")
    visitor.page.route(re.compile(r":\d+/(\?.*)?$"), answer)
    yield put
    visitor.page.unroute_all(behavior="ignoreErrors")


def refresh(page: Any) -> None:
    """Stop and continue live updates, which refreshes the page."""
    page.locator(".live").click()
    page.locator('[data-live="stopped"]').wait_for()
    with page.expect_response(lambda found: found.request.resource_type == "fetch"):
        page.locator(".live").click()


def test_rows_stay_and_new_ones_wait(visitor: Visitor, show: Show) -> None:
    def rows(*ids: int) -> str:
        body = "".join(f'<tr data-key="{id}"><td><a href="#">job {id}</a></td></tr>' for id in ids)
        table = f"<table><tbody data-rows data-defer>{body}</tbody></table>"
        return f'<div data-region="list"><p>{len(ids)} rows</p><div class="table">{table}</div></div>'

    show(rows(3, 2, 1))
    page = visitor.go("/")
    shown = page.locator("tbody tr")
    show(rows(5, 4, 3, 1))
    refresh(page)
    page.get_by_role("button", name="2 new – show").wait_for()
    expect(page.get_by_text("4 rows")).to_be_visible()
    expect(shown).to_have_text(["job 3", "job 2", "job 1"])
    expect(shown.nth(1)).to_contain_class("gone")
    show(rows(6, 5, 4, 3, 1))
    refresh(page)
    page.get_by_role("button", name="3 new – show").click()
    expect(shown).to_have_text(["job 6", "job 5", "job 4", "job 3", "job 1"])
    expect(page.locator(".newer")).to_have_count(0)


def test_what_the_viewer_does_survives_a_refresh(visitor: Visitor, show: Show) -> None:
    def content(number: int, more: str = "") -> str:
        return (
            f'<div data-region="all">{more}<p id="number">{number}</p><input id="typed" value="">'
            "<details><summary>More</summary>inside</details></div>"
        )

    show(content(1))
    page = visitor.go("/")
    page.locator("#typed").fill("half a wo")
    page.locator("main summary", has_text="More").click()
    page.evaluate("() => { document.querySelector('#typed').marked = true }")
    show(content(2, more="<p>A line above</p>"))
    refresh(page)
    page.get_by_text("A line above").wait_for()
    expect(page.locator("#number")).to_have_text("2")
    assert page.locator("#typed").input_value() == "half a wo"
    assert page.locator("details", has_text="inside").get_attribute("open") is not None
    assert page.evaluate("() => document.querySelector('#typed').marked")


def test_values_turn_grey_while_the_database_is_down(visitor: Visitor, show: Show) -> None:
    """Also if the stream comes back in the meantime: that it greets says nothing about the page."""
    form = '<form method="post" action="/x"><button class="btn">Retry</button></form>'
    greeting = "retry: 50\nevent: hello\ndata: {}\n\n"
    visitor.page.route(
        "**/api/v1/events?*", lambda route: route.fulfill(content_type="text/event-stream", body=greeting)
    )
    show(f'<div data-region="all">{form}</div>')
    page = visitor.go("/")
    with visitor.faults.expecting(503):
        show(form, status=503)
        refresh(page)
        page.get_by_text("The database does not answer. The page shows the state of").wait_for()
        expect(page.get_by_role("button", name="Retry")).to_be_disabled()
        page.locator('[data-live="offline"]').wait_for()
        show(f'<div data-region="all">{form}</div>')
        page.locator("html:not(.stale)").wait_for()
    expect(page.get_by_role("button", name="Retry")).to_be_enabled()
    expect(page.locator("[data-stale]")).to_be_hidden()


def test_a_stopped_page_stays_stopped_and_continues_at_once(visitor: Visitor, show: Show) -> None:
    """Whatever the answer to the last refresh is, and however long it took."""
    show('<div data-region="all"><p>first</p></div>')
    page = visitor.go("/")
    page.locator('[data-live="live"]').wait_for()
    held: list[Any] = []
    address = re.compile(r":\d+/$")
    page.route(address, lambda route: held.append(route))
    with page.expect_request(address):
        page.keyboard.press("t")
    page.locator(".live").click()
    page.locator('[data-live="stopped"]').wait_for()
    with visitor.faults.expecting(503), page.expect_event("requestfinished"):
        held.pop().fulfill(status=503, content_type="text/html", body="<main></main>")
    page.evaluate("() => new Promise(resolve => setTimeout(resolve))")  # the page has seen the answer
    assert page.locator('[data-live="stopped"]').is_visible()
    assert not page.locator("[data-stale]").is_visible()
    with page.expect_request(address):
        page.locator(".live").click()
    page.evaluate("() => { const now = Date.now; Date.now = () => now() + 2000 }")  # the answer was slow
    page.keyboard.press("t")
    with page.expect_request(address):
        held.pop().fallback()


def test_a_question_comes_as_a_dialog(visitor: Visitor, show: Show) -> None:
    sheet = (
        '<form class="form" method="post" action="/sure" data-sheet><div class="body">'
        '<input type="hidden" name="confirmed" value="yes"></div>'
        '<div class="foot"><button class="btn danger">Delete it</button></div></form>'
    )
    sent: list[str] = []

    def answer(route: Any) -> None:
        sent.append(route.request.post_data)
        body = f"<main><h1>Delete job 12?</h1>{sheet}</main>"
        if "confirmed" in route.request.post_data:
            body = '<nav class="pages"></nav><main><h1>Deleted</h1></main>'
        route.fulfill(status=200, content_type="text/html", body=f"<!doctype html><title>t</title>{body}")

    show(
        '<form method="post" action="/sure" data-act><input type="hidden" name="id" value="12">'
        '<button class="btn" name="action" value="delete" data-key-press="e">Delete</button></form>'
    )
    visitor.page.route("**/sure", answer)
    page = visitor.go("/")
    page.keyboard.press("e")
    dialog = page.get_by_role("dialog", name="Delete job 12?")
    dialog.wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Deleted").wait_for()
    expect(dialog).to_have_count(0)
    assert sent == ["id=12&action=delete", "confirmed=yes"]


def test_a_letter_changes_nothing_without_a_question(visitor: Visitor, show: Show) -> None:
    """Also where a click acts at once; the answer is sent as confirmed."""
    sent: list[str] = []

    def answer(route: Any) -> None:
        sent.append(route.request.post_data)
        body = '<nav class="pages"></nav><main><h1>Retried</h1></main>'
        route.fulfill(status=200, content_type="text/html", body=f"<!doctype html><title>t</title>{body}")

    show(
        '<form method="post" action="/act" data-act><input type="hidden" name="ids" value="12">'
        '<button class="btn" name="action" value="retry" data-key-press="r">Retry</button></form>'
    )
    visitor.page.route("**/act", answer)
    page = visitor.go("/")
    page.keyboard.type("retr")
    dialog = page.get_by_role("dialog", name="Retry?")
    expect(dialog).to_contain_text("Test")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert sent == []
    page.keyboard.press("r")
    dialog.get_by_role("button", name="Retry").click()
    page.get_by_role("heading", name="Retried").wait_for()
    assert sent == ["ids=12&action=retry&confirmed=yes"]


def test_space_scrolls(visitor: Visitor, show: Show) -> None:
    show('<svg width="10" height="5000"><rect width="1" height="1"/></svg>')
    page = visitor.go("/")
    page.locator('[data-live="live"]').wait_for()
    page.keyboard.press("Space")
    page.wait_for_function("() => scrollY > 0")
    assert page.locator('[data-live="live"]').is_visible()


def test_fields_of_a_dialog_have_ids_of_their_own(visitor: Visitor, show: Show) -> None:
    """The page below it may have fields of the same names."""
    field = (
        '<label for="f-priority">Priority</label><input id="f-priority" list="l-priority"'
        ' aria-describedby="h-priority"><datalist id="l-priority"></datalist><p id="h-priority">hint</p>'
    )
    sheet = f'<form class="form" method="post" action="/sure" data-sheet>{field}</form>'
    body = f"<!doctype html><title>t</title><main><h1>Reschedule</h1>{sheet}</main>"
    visitor.page.route("**/sure", lambda route: route.fulfill(content_type="text/html", body=body))
    show(f'{field}<a href="/sure" data-dialog>Open</a>')
    page = visitor.go("/")
    page.get_by_role("link", name="Open").click()
    dialog = page.get_by_role("dialog", name="Reschedule")
    dialog.get_by_label("Priority").fill("1")
    expect(dialog.get_by_label("Priority")).to_have_accessible_description("hint")
    doubled = "all => all.map(each => each.id).filter((id, at, ids) => ids.indexOf(id) !== at)"
    assert page.locator("[id]").evaluate_all(doubled) == []


def test_a_tap_shows_the_exact_time(visitor: Visitor, show: Show) -> None:
    """It stays when the page refreshes itself."""
    at = '<time datetime="2026-01-02T23:30:00+00:00" data-ago>long ago</time>'
    show(f'<div data-region="all"><p>first</p>{at}</div>')
    page = visitor.go("/")
    time = page.locator("main time")
    time.click()
    expect(time).to_have_text("2026-01-03 00:30:00 CET")
    show(f'<div data-region="all"><p>second</p>{at}</div>')
    refresh(page)
    page.get_by_text("second").wait_for()
    expect(time).to_have_text("2026-01-03 00:30:00 CET")
    time.click()
    expect(time).to_have_text(re.compile(" ago$"))


def test_keys_move_select_and_open(visitor: Visitor, show: Show) -> None:
    rows = "".join(
        f'<tr data-key="{id}"><td class="tick"><input type="checkbox" value="{id}" aria-label="{id}"></td>'
        f'<td><a href="?row={id}">row {id}</a></td></tr>'
        for id in range(1, 6)
    )
    show(f"<table><tbody data-rows>{rows}</tbody></table><p data-bulk><span data-selected></span></p>")
    page = visitor.go("/")
    for key in "jjxjjX":
        page.keyboard.press(key)
    values = "all => all.map(each => each.value)"
    expect(page.get_by_text("3 selected")).to_be_visible()
    assert page.locator("tbody :checked").evaluate_all(values) == ["2", "3", "4"]
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?row=3")


def test_help_commands_and_switching_letters_off(visitor: Visitor, show: Show) -> None:
    page = visitor.go("/")
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keyboard").wait_for()
    page.get_by_label("Keys without Ctrl are on").uncheck()
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    page.keyboard.press("?")
    page.evaluate("() => new Promise(requestAnimationFrame)")  # the key has done what it does
    assert page.locator("dialog").count() == 0
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name=re.compile("Go to a page")).fill("over")
    expect(page.get_by_role("option", name="Overview")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page.locator("dialog")).to_have_count(0)


def test_times_follow_the_zone(visitor: Visitor, show: Show) -> None:
    show('<time id="at" datetime="2026-01-02T23:30:00+00:00" data-clock></time>')
    page = visitor.go("/")
    page.get_by_text("Times in Europe/Berlin").wait_for()
    at = page.locator("#at")
    expect(at).to_have_attribute("title", re.compile("^2026-01-03 00:30:00 .* 2026-01-02 23:30:00 UTC$"))
    page.keyboard.press("t")
    expect(at).to_have_attribute("title", "2026-01-02 23:30:00 UTC")
    page.reload()
    page.locator("footer", has_text="Times in UTC").wait_for()


def test_the_theme_is_kept(visitor: Visitor, show: Show) -> None:
    page = visitor.go("/")
    body = page.locator("body")
    light = body.evaluate("body => getComputedStyle(body).backgroundColor")
    page.locator(".user summary").click()
    page.get_by_role("button", name="Dark").click()
    expect(body).not_to_have_css("background-color", light)
    page.reload()
    expect(body).not_to_have_css("background-color", light)


def test_a_chart_says_its_values(visitor: Visitor, show: Show) -> None:
    show(
        '<figure class="chart" data-start="1767398400" data-step="60" data-count="3" data-unit="/min"'
        ' data-kind="number"><svg width="100%" height="100" role="img" aria-label="x">'
        '<svg class="plot" width="100%" height="80"><path class="line c1" data-name="<b>done</b>"'
        ' data-values="10,,1234"/></svg></svg></figure>'
    )
    page = visitor.go("/")
    box = page.locator("figure > svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    reading = page.get_by_role("status").filter(has_text="unknown")
    expect(reading).to_contain_text("<b>done</b>")
    page.mouse.move(2, 2)
    page.locator(".reading").wait_for(state="detached")
    page.locator("figure.chart").focus()
    page.get_by_text("1,234 /min").wait_for()
    page.keyboard.press("Home")
    page.get_by_text("10 /min").wait_for()


def test_copying_works_over_plain_http(visitor: Visitor, show: Show) -> None:
    show('<div class="code"><button class="btn" data-copy>Copy</button><pre>text to copy</pre></div>')
    visitor.context.add_init_script("Object.defineProperty(window, 'isSecureContext', { value: false })")
    page = visitor.go("/")
    note = "() => addEventListener('copy', () => { window.copied = document.activeElement.value })"
    page.evaluate(note)
    page.evaluate("() => { window.setTimeout = () => 0 }")  # it says "Copied" for a second and a half
    page.get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("() => window.copied") == "text to copy"
