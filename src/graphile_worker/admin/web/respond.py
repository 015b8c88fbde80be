"""Turns what handlers return or raise into responses."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ...database.connections import sqlstates
from ...database.connections.errors import server_message, sqlstate_of, translated_error
from ...errors import (
    ConfigError,
    GraphileWorkerError,
    InvalidArgumentError,
    JobRefusedError,
    SchemaMissingError,
)
from ..answers import Download, Notice, Page, Problem, Redirect
from ..database import is_outage
from ..security.sessions import cookie_name, set_cookie
from .call import Call
from .render import render
from .routes import Route

NOTICE = "notice"
NOTICE_LASTS = 60
LONGEST_NOTICE = 600


def response_of(call: Call, route: Route, answer: Any) -> Response:
    """The response for what a handler returned."""
    if isinstance(answer, Response):
        return answer
    if call.is_api and isinstance(answer, Page | Redirect):
        answer = answer.answer
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


# -- problems -----------------------------------------------------------------------------------------------

AGAIN_AFTER = 5
"""Seconds after which a page that failed is worth another request."""

_REFUSED = ("28", "53", sqlstates.INVALID_CATALOG_NAME)
"""SQLSTATEs: no entry, no resources, no such database."""
_MISSING = (
    sqlstates.INVALID_SCHEMA_NAME,
    sqlstates.UNDEFINED_TABLE,
    sqlstates.UNDEFINED_FUNCTION,
    sqlstates.UNDEFINED_COLUMN,
)
_CONFLICTS = (sqlstates.SERIALIZATION_FAILURE, sqlstates.DEADLOCK_DETECTED)


def problem_of(error: Exception) -> Problem | None:
    """The problem that an error means; None for a fault of our own."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, InvalidArgumentError):
        return Problem(400, "A value is not valid", str(error))
    if isinstance(error, JobRefusedError):
        return Problem(409, "The job was refused", str(error))
    if isinstance(error, SchemaMissingError):
        return _missing(str(error))
    if is_outage(error):
        return _down(error)
    state = sqlstate_of(error)
    if state is None:
        return _without_state(error)
    return _of_state(state, error)


def _of_state(state: str, error: Exception) -> Problem | None:
    if state == sqlstates.QUERY_CANCELED:
        return Problem(
            503, "The database took too long",
            "The statement was stopped, and nothing was changed. Narrow the filter, or try again when the "
            "database is less busy.", retry_after=AGAIN_AFTER,
        )  # fmt: skip
    if state == sqlstates.LOCK_NOT_AVAILABLE:
        return Problem(
            409, "Busy: a worker or another transaction has locked its row",
            "Nothing was changed. Try again in a moment.", retry_after=1,
        )  # fmt: skip
    if state in _CONFLICTS:
        return Problem(409, "Another transaction changed the same rows", "Nothing was changed. Try again.")
    if state == sqlstates.INSUFFICIENT_PRIVILEGE:
        return Problem(
            403, "The database role may not do this",
            f"PostgreSQL says: {server_message(error)}. The dashboard connects with a role that lacks a "
            "privilege; the documentation lists the grants.",
        )  # fmt: skip
    if state == sqlstates.READ_ONLY_SQL_TRANSACTION:
        return Problem(403, "The database is read-only here", "PostgreSQL refused the change.")
    if state in _MISSING:
        return _missing(server_message(error))
    if state.startswith(_REFUSED):
        return _down(error)
    if state.startswith("22"):
        return Problem(400, "A value is not valid", f"PostgreSQL says: {server_message(error)}")
    return None


def _without_state(error: Exception) -> Problem | None:
    if isinstance(error, ValueError) and type(error).__module__.startswith("asyncpg"):
        return Problem(400, "A value is not valid", "A number is too large, or a text cannot be stored.")
    if isinstance(error, GraphileWorkerError) and not isinstance(error, ConfigError):
        return Problem(409, "This did not work", str(error))
    return _down(error) if translated_error(error) is not None else None


def _down(error: Exception) -> Problem:
    state = sqlstate_of(error)
    reason = f" ({state})" if state else ""
    return Problem(
        503, "The database does not answer",
        f"The dashboard tries again with each request{reason}.",
        retry_after=AGAIN_AFTER,
    )  # fmt: skip


def _missing(said: str) -> Problem:
    if "graphile-worker migrate" in said:
        return Problem(409, "A part of the schema is not installed", said)
    advice = f"{said}. To create it, run as the owner of the schema: graphile-worker migrate"
    if "_private_py_" in said:
        return Problem(409, "A part of the schema is not installed", advice)
    return Problem(503, "The schema is not installed, or not completely", advice)
