"""`/login` and `/logout`."""

from __future__ import annotations

import msgspec
from starlette.responses import RedirectResponse, Response

from ..history.audit import Actor
from ..values import __version__
from .answers import Page, Problem
from .audit.recording import record_sign_out
from .security.origins import set_cookie
from .security.sign_in import LONGEST_NAME, SignIn, safe_path
from .web.call import Call
from .web.respond import page_response
from .web.routes import API, Route


class LoginQuery(msgspec.Struct, frozen=True):
    next: str = "/"


class LoginForm(msgspec.Struct, frozen=True):
    user: str = ""
    password: str = ""
    token: str = ""
    """The secret of a one-time link."""
    next: str = "/"


async def login_page(call: Call, wanted: LoginQuery) -> Response:
    sign_in = _sign_in(call)
    target = safe_path(wanted.next)
    if call.app.authorize(call.request) is not None:
        return RedirectResponse(call.app_url(target), 303)
    return _page(call, sign_in, target)


async def login(call: Call, form: LoginForm) -> Response:
    sign_in = _sign_in(call)
    target = safe_path(form.next)
    try:
        if form.token:
            begun = sign_in.with_link(form.token, call.address)
        else:
            begun = await sign_in.with_password(form.user, form.password, call.address, call.request)
    except Problem as problem:
        return _page(call, sign_in, target, problem, form.user)
    response = RedirectResponse(call.app_url(target), 303)
    sign_in.sessions.set_cookie(call.request, response, begun)
    if begun.how == "password":
        sign_in.remember_browser(call.request, response, begun.user)
    return response


async def logout(call: Call) -> Response:
    sign_in = _sign_in(call)
    session = sign_in.sessions.read(call.request)
    if session is not None:
        sign_in.sessions.end(session)
        if sign_in.survives_restarts:
            actor = Actor(session.user, session.how, call.address)
            await record_sign_out(call.app.databases[0], actor, session.id)
    response = RedirectResponse(call.app_url("/login"), 303)
    set_cookie(call.request, response, "session", "", max_age=0)
    return response


def _sign_in(call: Call) -> SignIn:
    found = call.app.authorize
    if not isinstance(found, SignIn) or not found.has_page:
        raise Problem(404, "There is no such page")
    return found


def _page(
    call: Call, sign_in: SignIn, target: str, problem: Problem | None = None, user: str = ""
) -> Response:
    values = {"sign_in": sign_in, "next": target, "problem": problem, "user": user[:LONGEST_NAME]}
    status = problem.status if problem is not None else 200
    response = page_response(call, Page("login.html", "Sign in", values=values, status=status))
    if problem is not None and "retry_after" in problem.more:
        response.headers["Retry-After"] = str(problem.more["retry_after"])
    return response


class SessionInfo(msgspec.Struct, frozen=True):
    """The identity behind a request."""

    user: str
    permissions: list[str]
    read_only: bool
    databases: list[str]
    schema: str
    version: str


async def session(call: Call) -> SessionInfo:
    return SessionInfo(
        user=call.identity.name,
        permissions=sorted(call.identity.permissions),
        read_only=call.database.is_read_only,
        databases=[database.name for database in call.app.databases],
        schema=call.database.schema.name,
        version=__version__,
    )


ROUTES = [
    Route("/login", login_page, "open", "Sign in"),
    Route("/login", login, "open", "Sign in", method="POST", changes_nothing=True),
    Route("/logout", logout, "open", "Sign out", method="POST", changes_nothing=True),
    Route(
        f"{API}/session", session, "signed_in", "Who is signed in, and what they may do", answer=SessionInfo,
    ),
]  # fmt: skip
