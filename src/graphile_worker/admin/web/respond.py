"""Turns what handlers return or raise into responses. A page is a template in the frame of the layout.

Templates are of Jinja2 with autoescape. Each can use the macros of `templates/parts/ui.html` as `ui.NAME`,
without an import; that file says how. Filters: `ago` (relative time), `clock` and `clock_in` (exact time),
`duration` (seconds), `number`, `sentence` (capital letter), `short` (one line, cut), `exact` (for values of
fields). Characters that change the direction of text are shown by number in all texts that are not `exact`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import escape
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ...database.connections.connection import Row
from ...database.connections.errors import explained
from ...database.sql import load
from ...diagnostics.explanation.values import title, words
from ...values.job import Pause
from .. import charts
from ..answers import Count, Download, Notice, Page, Problem, Redirect
from ..database import ERRORS, OPERATIONS, WORKERS, Database
from ..live.hub import DOCTOR, Hub
from ..security.identity import Permission
from ..security.origins import cookie_name, set_cookie
from ..security.redact import redacted_pauses
from . import show, texts
from .call import Call
from .routes import Route
from .show import numbered

logger = logging.getLogger("graphile_worker.admin")

T = TypeVar("T")

NOTICE = "notice"
NOTICE_LASTS = 60
LONGEST_NOTICE = 600


async def response_of(call: Call, route: Route, answer: Any) -> Response:
    """The response for what a handler returned."""
    if isinstance(answer, Response):
        return answer
    if call.is_api and isinstance(answer, Page | Redirect):
        answer = answer.answer
    if isinstance(answer, Page):
        return page_response(call, answer, await gathered(call.hub))
    if isinstance(answer, Redirect):
        return _redirect(call, answer)
    if isinstance(answer, Download):
        return _download(answer)
    return Response(msgspec.json.encode(answer), route.status, media_type="application/json")


def page_response(call: Call, page: Page, around: Around | None = None) -> Response:
    response = Response(render(call, page, around), page.status, media_type="text/html")
    if call.notice is not None:
        set_cookie(call.request, response, NOTICE, "", max_age=0)
    return response


def problem_response(call: Call, problem: Problem, *, is_api: bool) -> Response:
    """A problem as a document (RFC 9457), or as a page in the frame."""
    wanted = preferred_type(call.request)
    if is_api or wanted == "application/json":
        response = problem_document(problem)
    else:
        values = {"detail": problem.detail, "more": problem.more}
        page = Page("problem.html", problem.title, values=values, status=problem.status)
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


# -- templates ----------------------------------------------------------------------------------------------

THEME_COOKIE = "gw_theme"
THEMES = ("light", "dark")


@dataclass(frozen=True, slots=True)
class Viewer:
    """For whom a page is rendered. Its methods are filters and functions of templates, macros included."""

    call: Call
    around: Around
    zone: tzinfo
    now: datetime

    def url(self, path: str, **query: object) -> str:
        return self.call.url(path, **query)

    def static(self, name: str) -> str:
        return self.call.url(self.call.app.static_url(name))

    def may(self, permission: Any) -> bool:
        return self.call.may(permission)

    def offers(self, path: str) -> bool:
        return self.call.app.offers(self.call.database, path)

    def worker_name(self, id: str) -> str:
        """Host and process id of a pool; the id itself if the database does not know it."""
        return self.around.worker_names.get(id, id)

    def moment(self, after: float = 0) -> datetime:
        return self.now + timedelta(seconds=after)

    def ago(self, at: datetime | None) -> str:
        return show.relative(at, self.now)

    def clock(self, at: datetime | None) -> str:
        return show.clock(at, self.now, self.zone)

    def clock_in(self, at: datetime, zone: tzinfo) -> str:
        return show.clock(at, self.now, zone)

    def time_parts(self, at: datetime, kind: str) -> dict[str, str]:
        """What `ui.time` shows: the machine's form, the text, and the exact time in both zones."""
        universal, local = show.instant(at, UTC), show.instant(at, self.zone)
        return {
            "machine": at.isoformat() if not show.is_never(at, self.now) else "",
            "text": self.clock(at) if kind == "clock" else self.ago(at),
            "title": universal if local == universal else f"{local} · {universal}",
        }


_viewer: ContextVar[Viewer] = ContextVar("viewer")


def _as_seen(method: Callable[..., T]) -> Callable[..., T]:
    """A method of the viewer for whom the page is rendered."""
    return lambda *args, **more: method(_viewer.get(), *args, **more)


@cache
def environment() -> Environment:
    found = Environment(
        loader=PackageLoader("graphile_worker.admin"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    found.filters.update(
        ago=_as_seen(Viewer.ago), clock=_as_seen(Viewer.clock), clock_in=_as_seen(Viewer.clock_in),
        duration=show.duration,
        number=number, sentence=sentence, short=short, exact=escape,
    )  # fmt: skip
    found.globals.update(
        url=_as_seen(Viewer.url), static=_as_seen(Viewer.static), may=_as_seen(Viewer.may),
        offers=_as_seen(Viewer.offers), now=_as_seen(Viewer.moment), time_parts=_as_seen(Viewer.time_parts),
        worker_name=_as_seen(Viewer.worker_name), times_in=show.times_in, state_of=show.state_of, texts=texts,
    )  # fmt: skip
    found.globals["ui"] = found.get_template("parts/ui.html").module
    found.globals["charts"] = charts
    return found


def _shown(value: object) -> object:
    return numbered(value) if type(value) is str and not value.isascii() else value


def render(call: Call, page: Page, around: Around | None = None) -> str:
    """The page as HTML."""
    around = around if around is not None else Around()
    theme = call.request.cookies.get(THEME_COOKIE, "")
    frame = {
        "call": call, "title": page.title, "here": page.here, "around": around,
        "zone": show.zone_name(call.zone), "zone_info": call.zone,
        "theme": theme if theme in THEMES else "",  # without one, that of the system
        "environment_tone": texts.ENVIRONMENT_TONES.get(call.app.environment.lower(), "accent"),
    }  # fmt: skip
    token = _viewer.set(Viewer(call, around, call.zone, datetime.now(UTC)))
    try:
        return environment().get_template(page.template).render(frame, **page.values)
    finally:
        _viewer.reset(token)


def number(value: float | Count | None, places: int = 0) -> str:
    """1,234; counts say their kind."""
    if value is None:
        return show.NONE
    return str(value) if isinstance(value, Count) else f"{value:,.{places}f}"


def short(value: object, longest: int = 200) -> str:
    """One line of text, cut with an ellipsis: for lists."""
    text = " ".join(str("" if value is None else value)[: longest * 4].split())
    return text if len(text) <= longest else text[: longest - 1] + "…"


def sentence(text: str) -> str:
    """With a capital letter, unless the first word is a name from the program, such as send_email."""
    first, _, _ = text.partition(" ")
    return text[:1].upper() + text[1:] if first.rstrip(":,").isalpha() else text


# -- around a page ------------------------------------------------------------------------------------------

MAX_AGE = 30.0
"""Seconds for which all pages share what was found."""
FINDINGS_FOR = 900.0
"""Seconds for which the number beside Doctor is shown: no other page examines the database."""
RECENT = timedelta(hours=1)
"""Error groups that occurred since then are counted beside Failures."""
MOST_GROUPS = 99
MOST_BANNERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """A line above the page: something is paused or under way, no worker is alive, the database is down."""

    text: str
    tone: Literal["info", "warn", "bad"] = "warn"
    here: str = ""
    """The entry of the navigation whose pages say the same by themselves."""
    until: datetime | None = None
    """Follows the text, as a time of the viewer's zone."""
    rest: str = ""
    """Follows the time."""
    action: str = ""
    """The label of a link."""
    path: str = ""
    """Where the link leads."""
    permission: Permission | None = None
    """For `post`; those without it get the link only."""
    post: str = ""
    """The path of a form that ends it, with a button Resume."""
    name: str = ""
    """The field `name` of that form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """Counts beside the navigation, banners, and names."""

    failures: Count | None = None
    """Error groups that occurred lately; None if there are none."""
    findings: int | None = None
    """Errors and warnings of the doctor, if it was asked lately and found any."""
    banners: tuple[Banner, ...] = ()
    worker_names: Mapping[str, str] = field(default_factory=dict)
    """What pages call a pool, by its id: host and process id."""


async def gathered(hub: Hub) -> Around:
    """What is shown around a page; a problem of its own never becomes one of the page."""
    found: Around
    try:
        found = await hub.shared("frame", lambda: _around(hub.database), max_age=MAX_AGE, topic="banners")
    except Exception as error:
        logger.debug("could not read what is shown around a page: %s", explained(error))
        found = Around()
    report = hub.known(DOCTOR, max_age=FINDINGS_FOR)
    findings = None if report is None else (report.errors + report.warnings) or None
    return replace(found, findings=findings, banners=(*_alarms(hub), *found.banners))


async def _around(database: Database) -> Around:
    now = datetime.now(UTC)
    async with database.read() as connection:
        tables = await database.own_tables(connection)
        pauses = await database.pauses(connection)
        groups = (
            await database.utils.history.list_error_groups(
                since=now - RECENT, limit=MOST_GROUPS + 1, connection=connection
            )
            if tables >= ERRORS
            else None
        )
        operations = (
            await connection.fetch(load("admin/active_operations", database.schema))
            if tables >= OPERATIONS
            else []
        )
        pools = (
            await connection.fetch(load("admin/hosts_of_pools", database.schema)) if WORKERS in tables else []
        )
    return Around(
        failures=_counted(len(groups)) if groups else None,
        banners=(
            *_under_way(operations),
            *(_paused(each) for each in redacted_pauses(pauses[:MOST_BANNERS])),
        ),
        worker_names={pool["id"]: f"{pool['host']} · {pool['pid']}" for pool in pools if pool["host"]},
    )


def _counted(groups: int) -> Count:
    return Count(groups) if groups <= MOST_GROUPS else Count(MOST_GROUPS, "at_least")


def _alarms(hub: Hub) -> Iterator[Banner]:
    samples = hub.sampler.samples
    if hub.down_since is not None:
        text = "The database does not answer. What you see is what it was before."
        yield Banner(text=text, tone="bad")
    elif samples and samples[-1].workers == 0 and samples[-1].ready.value:
        text = title(f"{words('no_worker', python='Python ')}, and jobs are ready to run.")
        yield Banner(text=text, tone="bad", action="Workers", path="/workers")


def _under_way(operations: Sequence[Row]) -> Iterator[Banner]:
    """A line about the changes to many jobs that have not ended."""
    if len(operations) > 1:
        text = f"{len(operations)} operations are under way."
        yield Banner(text=text, tone="info", here="operations", action="Operations", path="/operations")
    for row in operations if len(operations) == 1 else ():
        done, of = row["changed"] + row["skipped"], Count(row["expected"], row["expected_kind"])
        action = row["action"].replace("_", " ")
        text = f"Operation {row['id']} is under way: {action}, {done:,} of {of} jobs."
        path = f"/operations/{row['id']}"
        yield Banner(text=text, tone="info", here="operations", action="Open", path=path)


def _paused(pause: Pause) -> Banner:
    what = pause.what[0].upper() + pause.what[1:]
    because = f": {pause.reason}" if pause.reason else ""
    query = urlencode({"name": pause.name or ""})
    kind = "task" if pause.queue_name is None else "queue"
    return Banner(
        text=f"{what} is paused", until=pause.until, rest=because, action="Details",
        path=f"/{kind}?{query}" if pause.name else "/tasks", post=f"/{kind}s/resume",
        permission="tasks.pause" if kind == "task" else "queues.pause", name=pause.name or "",
    )  # fmt: skip
