"""Jobs: the list with its filter, counts, names for completion, and files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, TypeVar, cast

import msgspec
from starlette.responses import Response

from ...database.statements.job_filter import JobFilter
from ...history.records import FINISHED_STATES
from ..answers import Count, Page, Problem
from ..audit.queries import of_job
from ..security.identity import PERMISSION_FOR, Permission
from ..web.call import Call
from ..web.routes import API, Route
from ..web.show import one_line, words_for
from . import export, filters, listing
from .changing import ACTIONS
from .filters import FINISHED, PAYLOAD, STATES, Filter
from .job import get_record
from .listing import JobListQuery, JobPage
from .searching import ListOrder

NAMES_LAST = 60.0
"""Seconds for which the names beside the fields of the filter are kept."""
COUNTS_LAST = 20.0
"""Seconds for which the numbers of scheduled, retrying and finished jobs are shown again."""
Q = TypeVar("Q", bound=msgspec.Struct)


def with_conditions(query: type[Q]) -> type[Q]:
    """The query with a member for each condition of a filter."""
    conditions = [
        (each.name, Annotated[str, msgspec.Meta(max_length=filters.LONGEST, description=each.help)], "")
        for each in filters.FIELDS
    ]
    doc = {"__doc__": query.__doc__}
    found = msgspec.defstruct(
        query.__name__, conditions, bases=(query,), namespace=doc, module=__name__, kw_only=True
    )
    return cast(type[Q], found)


@with_conditions
class FilterQuery(msgspec.Struct, kw_only=True):
    """Conditions, all of which must hold; `payload.PATH=VALUE` is one too."""

    q: Annotated[str, msgspec.Meta(max_length=2000)] = ""
    """All conditions in one text, as in the filter box: `state:failed task:send_email`."""


class JobsQuery(FilterQuery, kw_only=True):
    """One page of jobs."""

    order: ListOrder | None = None
    """By default the newest first; of waiting jobs, and of those of a queue, run order."""
    after: str | None = None
    """`next` of the page before."""
    before: str | None = None
    """`previous` of the page after."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=listing.MAX_PAGE)] = listing.PAGE
    payload: bool = False
    """Whether to return payloads, redacted; up to 64 KB each."""
    search: bool = False
    """Running jobs: look through the table, in place of what workers report."""


class ExportQuery(FilterQuery, kw_only=True):
    """A file with jobs."""

    format: export.ExportFormat = "jsonl"
    order: ListOrder | None = None
    after: str | None = None
    """The header X-Next of the file before."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=export.MAX_JOBS)] = export.MAX_JOBS


class CompletionQuery(msgspec.Struct, kw_only=True):
    """The word that is being typed."""

    q: Annotated[str, msgspec.Meta(max_length=200)] = ""


class Completion(msgspec.Struct, frozen=True):
    """Suggestions, up to 60."""

    items: list[filters.Suggestion]


def filter_of(call: Call) -> Filter:
    """The filter in the query string."""
    return Filter.from_query(call.request.query_params.multi_items())


def job_filter_of(call: Call, filter: Filter) -> JobFilter:
    """The client's filter, which does not search what the person may not see."""
    return filter.job_filter(redactor=None if call.may("payload.read") else call.redactor)


def _wanted(call: Call, filter: Filter, **more: Any) -> JobListQuery:
    chosen: Any
    if filter.is_finished:
        chosen = filter.finished_filter(redactor=None if call.may("payload.read") else call.redactor)
    else:
        chosen = job_filter_of(call, filter)
    return JobListQuery(filter=chosen, redactor=call.redactor, **more)


# -- the list -----------------------------------------------------------------------------------------------


async def list_jobs(call: Call, asked: JobsQuery) -> Page | JobPage:
    filter, problem, found = Filter(), None, None
    try:
        filter = filter_of(call)
        found = await listing.list_jobs(
            call.database,
            _wanted(
                call, filter, order=asked.order, after=asked.after, before=asked.before, limit=asked.limit,
                with_payload=call.is_api and asked.payload, search_running=asked.search,
            ),
        )  # fmt: skip
    except Problem as error:
        if call.is_api or error.status not in (400, 403):
            raise
        problem = error
    if call.is_api and found is not None:
        return found
    tasks, queues = await call.hub.shared("jobs.names", lambda: _names(call), max_age=NAMES_LAST)
    links, counts = _Links(call, asked, filter, found), await _counts(call)
    values = {
        "filter": filter, "text": filter.text or asked.q, "found": found, "problem": problem, "asked": asked,
        "is_finished": filter.is_finished, "fields": filters.FIELDS, "payload_prefix": PAYLOAD,
        "names": {"task": tasks, "queue": queues}, "actions": _actions(call, filter),
        "tabs": links.tabs(counts), "count": _count(filter, found, counts), "links": links,
        "one_line": one_line, "elsewhere": await _elsewhere(call, filter, found),
    }  # fmt: skip
    status = 200 if problem is None else problem.status
    return Page("jobs.html", "Jobs", here="jobs", values=values, answer=found, status=status)


async def _names(call: Call) -> tuple[list[str], list[str]]:
    async with call.database.read() as connection:
        tasks = await filters.names(connection, call.database.schema, "task", most=200)
        return tasks, await filters.names(connection, call.database.schema, "queue", most=100)


async def _counts(call: Call) -> dict[str, Count]:
    """By state; those that the sample does not have may be some seconds old."""
    sample = await call.hub.current()
    further = await call.hub.shared(
        "jobs.counts", lambda: listing.count_states(call.database, sample.scheduled), max_age=COUNTS_LAST
    )
    found = {"ready": sample.ready, "running": sample.running, "failed": sample.failed, **further}
    parts = [found[state] for state in ("ready", "scheduled", "running", "failed")]
    is_exact = all(part.kind == "exact" for part in parts)
    return {"": Count(sum(part.value for part in parts), "exact" if is_exact else "estimate"), **found}


def _count(filter: Filter, found: JobPage | None, counts: dict[str, Count]) -> Count | None:
    """How many jobs there are in the list: the number of its tab, unless it is known exactly."""
    count = None if found is None else found.count
    if count is None or count.kind == "exact" or any(name != "state" for name, _ in filter.conditions):
        return count
    return counts.get(filter.get("state"), count)


def _actions(call: Call, filter: Filter) -> list[tuple[str, str, Permission, str]]:
    """On a selection: name, label, permission and key of those that may do something here.

    To cancel jobs that do not run needs the right to delete them.
    """
    spares = not call.may("jobs.delete") and filter.get("state") in ("ready", "scheduled", "failed")
    return [
        (name, words_for(name), PERMISSION_FOR[name], action.key)
        for name, action in ACTIONS.items()
        if action.is_on_selection and not (spares and name == "cancel")
    ]


async def _elsewhere(call: Call, filter: Filter, found: JobPage | None) -> list[filters.NamedPage]:
    """Pages about what was typed, besides the jobs in the list."""
    words = dict(filter.conditions)
    if found is None or len(words) != 1:
        return []
    if "text" in words:
        return await filters.named(call.database, words["text"])
    if not words.get("id", "").isdecimal() or found.items:
        return []
    job_id = int(words["id"])
    async with call.database.read() as connection:
        record = await get_record(connection, call.database.schema, job_id)
        entries = await of_job(call.database, connection, job_id) if call.may("audit.read") else []
    if not record.is_known and not entries:
        return []
    return [filters.NamedPage(f"Job {job_id}, {record.state}", "job", f"/jobs/{job_id}")]


class _Links:
    """Addresses of the list with one thing changed."""

    def __init__(self, call: Call, asked: JobsQuery, filter: Filter, found: JobPage | None) -> None:
        self._call, self._asked, self._filter, self._found = call, asked, filter, found

    def _to(self, path: str = "/jobs", **more: object) -> str:
        asked = self._asked
        kept = {
            "order": asked.order,
            "limit": None if asked.limit == listing.PAGE else asked.limit,
            "search": "true" if asked.search else None,
        }
        return self._call.url(path, **{**self._filter.query, **kept, **more})

    def tabs(self, counts: dict[str, Count]) -> Iterator[tuple[str, str, bool]]:
        """The states: text, address, and whether it is chosen."""
        chosen, base = FINISHED if self._filter.is_finished else self._filter.get("state"), self._filter
        for name in filters.OF_FINISHED:
            base = base.without(name)
        for state in ("", *STATES):
            label, count = state.capitalize() or "All", counts.get(state)
            text = label if count is None else f"{label} {count}"
            yield text, self._list(base.replaced(state=state)), chosen == state

    @property
    def outcomes(self) -> list[tuple[str, str, bool]]:
        """Of finished jobs: how they ended."""
        chosen, base = self._filter.get("outcome"), self._filter.replaced(state=FINISHED)
        return [
            (each.capitalize() or "Any outcome", self._list(base.replaced(outcome=each)), chosen == each)
            for each in ("", *FINISHED_STATES)
        ]

    def _list(self, filter: Filter) -> str:
        """The first page of another list."""
        return self._call.url("/jobs", **filter.query)

    def order(self, order: ListOrder) -> str:
        """The same list in another order."""
        return self._to(order=order, search=None)

    @property
    def can_run_order(self) -> bool:
        """Whether the jobs have a run order."""
        return (
            self._filter.get("state") in ("", "ready", "scheduled", "retrying")
            and not self._filter.is_finished
        )

    def in_state(self, state: str) -> str:
        return self._list(self._filter.replaced(state=state))

    @property
    def next(self) -> str:
        return self._to(after=self._found.next) if self._found is not None and self._found.next else ""

    @property
    def previous(self) -> str:
        if self._found is not None and self._found.previous:
            return self._to(before=self._found.previous)
        return "" if self._asked.after is None and self._asked.before is None else self._to()

    @property
    def here(self) -> str:
        return self._to(after=self._asked.after, before=self._asked.before)

    @property
    def search(self) -> str:
        return self._to(search="true")

    def export(self, format: export.ExportFormat) -> str:
        return self._to("/jobs/export", format=format)

    @property
    def without(self) -> list[tuple[str, str, str]]:
        """Each condition, and the list without it."""
        return [
            (name, value, self._list(self._filter.without(name))) for name, value in self._filter.conditions
        ]


# -- counts, names and files --------------------------------------------------------------------------------


async def count_jobs(call: Call, _: FilterQuery) -> Count:
    return await export.count_exactly(call.database, job_filter_of(call, filter_of(call)))


async def complete(call: Call, wanted: CompletionQuery) -> Completion:
    return Completion(await filters.complete(call.database, wanted.q))


class Found(msgspec.Struct, frozen=True):
    """Pages about what was typed."""

    items: list[filters.NamedPage]


async def find(call: Call, wanted: CompletionQuery) -> Found:
    return Found(await filters.named(call.database, wanted.q))


async def export_jobs(call: Call, asked: ExportQuery) -> Response:
    found = await export.export_jobs(
        call.database,
        _wanted(
            call, filter_of(call), order=asked.order, after=asked.after, limit=asked.limit,
            search_running=True,
        ),
        asked.format,
    )  # fmt: skip
    headers = {
        "Content-Disposition": f'attachment; filename="jobs.{asked.format}"',
        "X-Jobs": str(found.jobs),
    }
    if found.next is not None:
        headers["X-Next"] = found.next
    media = "application/jsonl" if asked.format == "jsonl" else "text/csv; charset=utf-8"
    return Response(found.content, headers=headers, media_type=media)


ROUTES = [
    Route("/jobs", list_jobs, "jobs.read", "Jobs that match a filter, one page", api=True, answer=JobPage),
    Route(
        f"{API}/jobs/count", count_jobs, "jobs.read", "How many jobs match, counted for up to ten seconds",
        answer=Count,
    ),
    Route("/jobs/export", export_jobs, "jobs.read", "Jobs as a file"),
    Route(
        f"{API}/jobs/export", export_jobs, "jobs.read",
        "Jobs as JSON Lines or CSV, up to 10,000; X-Next is the cursor for the next file",
        media_type="application/jsonl",
    ),
    Route(
        f"{API}/jobs/completion", complete, "jobs.read", "Suggestions for the filter box", answer=Completion,
    ),
    Route(
        f"{API}/find", find, "jobs.read",
        "Tasks, queues, workers, schedules and jobs by what is known of their name or id", answer=Found,
    ),
]  # fmt: skip
