"""Turns what handlers return or raise into responses."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from .answers import Download, Notice, Page, Problem, Redirect
from .call import Call
from .render import render
from .routes import Route
from .sessions import cookie_name, set_cookie

NOTICE = "notice"
NOTICE_LASTS = 60
LONGEST_NOTICE = 600


def response_of(call: Call, route: Route, answer: Any) -> Response:
    """The response for what a handler returned."""
    if isinstance(answer, Response):
        return answer
    if isinstance(answer, Page):
        return page_response(call, answer)
    if isinstance(answer, Redirect):
        return _redirect(call, answer)
    if isinstance(answer, Download):
        return _download(answer)
    return Response(msgspec.json.encode(answer), route.status, media_type="application/json")


def page_response(call: Call, page: Page) -> Response:
    response = Response(render(call, page), page.status, media_type="text/html")
    if call.notice is not None:
        set_cookie(call.request, response, NOTICE, "", max_age=0)
    return response


def problem_response(call: Call, problem: Problem, *, is_api: bool) -> Response:
    """A problem as a document (RFC 9457), or as a page in the frame."""
    wanted = preferred_type(call.request)
    if is_api or wanted == "application/json":
        response = problem_document(problem)
    else:
        page = Page("problem.html", problem.title, values=_values(problem), status=problem.status)
        response = Response(render(call, page), problem.status, media_type="text/html")
    return with_problem_headers(response, problem)


def problem_document(problem: Problem) -> Response:
    content = {
        "type": "about:blank", "title": problem.title, "status": problem.status, "detail": problem.detail,
        **problem.more,
    }  # fmt: skip
    return Response(msgspec.json.encode(content), problem.status, media_type="application/problem+json")


def with_problem_headers(response: Response, problem: Problem) -> Response:
    if (seconds := problem.more.get("retry_after")) is not None:
        response.headers["Retry-After"] = str(seconds)
    if (methods := problem.more.get("allow")) is not None:
        response.headers["Allow"] = ", ".join(methods)
    if problem.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def read_notice(call: Call) -> Notice | None:
    """The notice of the page before, if its cookie is ours and about this database."""
    text = call.request.cookies.get(cookie_name(call.request, NOTICE))
    found = call.app.signer.read(NOTICE, text, Notice) if text else None
    return found if found is not None and found.database == call.database.name else None


def preferred_type(request: Request) -> str:
    """Which of HTML and JSON the client wants; HTML unless it names only JSON."""
    accepted = [part.split(";")[0].strip().lower() for part in request.headers.get("accept", "").split(",")]
    for type in ("text/html", "application/json"):
        if type in accepted:
            return type
    return "text/html"


def _values(problem: Problem) -> dict[str, Any]:
    return {"detail": problem.detail, "status": problem.status, "more": problem.more}


def _redirect(call: Call, answer: Redirect) -> Response:
    response = RedirectResponse(call.url(answer.path), 303)
    if answer.notice:
        notice = Notice(answer.notice[:LONGEST_NOTICE], answer.undo, call.database.name)
        signed = call.app.signer.sign(NOTICE, notice)
        set_cookie(call.request, response, NOTICE, signed, max_age=NOTICE_LASTS)
    return response


def _download(answer: Download) -> Response:
    name = quote(answer.name, safe="")
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        # Should a browser show it after all, nothing in it runs.
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    return Response(answer.content, headers=headers, media_type=answer.media_type)
