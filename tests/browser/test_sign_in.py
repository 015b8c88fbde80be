"""Signing in, and what other sites cannot do with a person who is signed in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from scripts.lively.addresses import VALUE
from scripts.lively.background import Background
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from browser.conftest import Visit
from browser.site import Site, Visitor, database, served
from graphile_worker.admin import admin_app
from graphile_worker.admin.security.sign_in import SignIn
from graphile_worker.admin.table import ROUTES
from support.server import DatabaseServer

PASSWORD = "correct horse battery staple"


@pytest.fixture(scope="module")
def closed(
    server: DatabaseServer, template_database: str, background: Background
) -> Iterator[tuple[Site, SignIn]]:
    """A dashboard with one user."""
    with database(server, template_database) as url:
        sign_in = SignIn(password=PASSWORD)
        app = admin_app(connection_string=url, authorize=sign_in)
        with served(background, url, app) as site:
            yield site, sign_in


@pytest.fixture(scope="module")
def elsewhere(background: Background, closed: tuple[Site, SignIn]) -> Iterator[str]:
    """A second origin, with pages that attack the first."""
    target = closed[0].address

    async def form(request: Request) -> Response:
        return HTMLResponse(
            f"<form method=post action='{request.query_params['target']}'>"
            "<input name=name value=invoices><button>Win a prize</button></form>"
        )

    async def frame(request: Request) -> Response:
        return HTMLResponse(f"<h1>Elsewhere</h1><iframe src='{target}/'></iframe>")

    app = Starlette(routes=[Route("/form", form), Route("/frame", frame)])
    # Another host name: for the same-site rule of cookies, other ports of the same host are no other site.
    with served(background, "", app, host="localhost") as site:
        yield site.address


def sign_in_at(visitor: Visitor, password: str = PASSWORD) -> Any:
    page = visitor.go("/")
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    return page


def test_a_person_signs_in_and_out(closed: tuple[Site, SignIn], visit: Visit) -> None:
    site, _ = closed
    visitor = visit(site)
    with visitor.faults.expecting(401, 403):
        page = sign_in_at(visitor, "wrong")
        page.get_by_role("alert").wait_for()
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("navigation", name="Pages").wait_for()
    (cookie,) = [cookie for cookie in visitor.context.cookies() if "session" in cookie["name"]]
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    page.locator("summary[aria-label^='Menu of']").click()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Password").wait_for()
    assert "/login" in visitor.go("/").url


def test_a_link_signs_in_once_and_leaves_no_trace_in_the_address(
    server: DatabaseServer, template_database: str, background: Background, visit: Visit
) -> None:
    with database(server, template_database) as url:
        sign_in = SignIn()
        token = sign_in.make_link()
        app = admin_app(connection_string=url, authorize=sign_in)
        with served(background, url, app) as site:
            visitor = visit(site)
            page = visitor.go(f"/login#token={token}")
            page.get_by_role("navigation", name="Pages").wait_for()
            assert token not in page.url
            again = visit(site)
            with again.faults.expecting(401, 403):
                page = again.go(f"/login#token={token}")
                page.get_by_role("alert").wait_for()
            again.context.close()
            visitor.context.close()


@pytest.mark.parametrize("is_open", [False, True], ids=["signed in", "open to all"])
def test_a_form_of_another_site_changes_nothing(
    closed: tuple[Site, SignIn], fresh: Site, elsewhere: str, visit: Visit, is_open: bool
) -> None:
    """Every route that changes something. Without a cookie to withhold, the origin alone decides."""
    site = fresh if is_open else closed[0]
    visitor = visit(site)
    if not is_open:
        sign_in_at(visitor).get_by_role("navigation", name="Pages").wait_for()
    page = visitor.context.new_page()
    statuses: list[int] = []
    page.on("response", lambda answer: note_navigation(answer, statuses))
    for path in sorted({VALUE.sub("1", route.path) for route in ROUTES if route.method == "POST"}):
        with visitor.faults.expecting(401, 403, 404, 405, 415):
            page.goto(f"{elsewhere}/form?target={site.address}{path}")
            page.get_by_role("button").click()
            page.wait_for_url(f"{site.address}/**")
        assert statuses[-1] in (401, 403), f"{path}: {statuses[-1]}"
    visitor.faults.found = [fault for fault in visitor.faults.found if elsewhere not in fault]
    visitor.go("/").get_by_role("navigation", name="Pages").wait_for()  # also after the form for /logout


def note_navigation(answer: Any, statuses: list[int]) -> None:
    if answer.request.is_navigation_request():
        statuses.append(answer.status)


def test_no_other_site_shows_it_in_a_frame(closed: tuple[Site, SignIn], elsewhere: str, visit: Visit) -> None:
    site, _ = closed
    visitor = visit(site)
    sign_in_at(visitor).get_by_role("navigation", name="Pages").wait_for()
    page = visitor.context.new_page()
    page.goto(f"{elsewhere}/frame")
    inner = page.frames[1]
    assert not inner.url.startswith(site.address)
    visitor.faults.wait_for("frame-ancestors", page)


def test_an_unknown_host_is_refused(
    server: DatabaseServer, template_database: str, background: Background, visit: Visit
) -> None:
    """As after DNS rebinding: the browser resolves a name of the attacker to this machine."""
    with database(server, template_database) as url:
        app = admin_app(
            connection_string=url, authorize=SignIn(password="x" * 20), allowed_hosts=["127.0.0.1"]
        )
        with served(background, url, app) as site:
            visitor = visit(site)
            with visitor.faults.expecting(400, 403, 421):
                answer = visitor.page.goto(site.address.replace("127.0.0.1", "localhost"))
            assert answer.status >= 400
            visitor.faults.found.clear()
            visitor.context.close()
