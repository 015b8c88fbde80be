"""`/api/v1/jobs`: the list of jobs, counts, names for completion, and files."""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.responses import Response

from ...database.statements.job_filter import JobFilter
from ..answers import Count, Problem
from ..security.redact import Redactor
from ..web.call import Call
from ..web.routes import API, Route
from . import JobPage, ListOrder, filters, listing
from .filters import Filter

Text = Annotated[str, msgspec.Meta(max_length=200)]


class FilterQuery(msgspec.Struct, kw_only=True):
    """Conditions, all of which must hold; `payload.PATH=VALUE` is one too."""

    q: Annotated[str, msgspec.Meta(max_length=2000)] = ""
    """All conditions in one text, as in the filter box: `state:failed task:send_email`."""
    state: Text = ""
    """ready, scheduled, running or failed."""
    task: Text = ""
    queue: Text = ""
    key: Text = ""
    """A job key; with `*` at the end, its beginning."""
    flag: Text = ""
    worker: Text = ""
    """The id of the pool that has locked the job."""
    priority: Text = ""
    """5, <0 or 1..5."""
    attempts: Text = ""
    created: Text = ""
    """>1h is later than an hour ago, <2030-01-31 before that day, 2d..1d between."""
    run: Text = ""
    failed: Text = ""
    error: Text = ""
    """A part of the last error, in upper or lower case."""
    id: Text = ""
    """An id or a range: 1000-2000."""
    text: Text = ""
    """A part of the task identifier, the job key or the last error."""


class JobsQuery(FilterQuery, kw_only=True):
    """One page of jobs."""

    order: ListOrder | None = None
    """By default the newest first; of ready and scheduled jobs, in run order."""
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

    format: listing.ExportFormat = "jsonl"
    order: ListOrder | None = None
    after: str | None = None
    """The header X-Next of the file before."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=listing.MAX_JOBS)] = listing.MAX_JOBS


class CompletionQuery(msgspec.Struct, kw_only=True):
    """The word that is being typed."""

    q: Text = ""


class Completion(msgspec.Struct, frozen=True):
    """Suggestions, up to 60."""

    items: list[filters.Suggestion]


def filter_of(call: Call) -> Filter:
    """The filter in the query string."""
    return Filter.from_query(call.request.query_params.multi_items())


def redactor_of(call: Call) -> Redactor:
    """The redactor of the dashboard."""
    return call.app.shared("redactor", lambda: Redactor.of(call.app.settings))


def job_filter_of(call: Call, filter: Filter) -> JobFilter:
    """The client's filter, which does not search what the person may not see."""
    return filter.job_filter(redactor=None if call.may("payload.read") else redactor_of(call))


async def list_jobs(call: Call) -> JobPage:
    asked = call.query(JobsQuery)
    if asked.after is not None and asked.before is not None:
        raise Problem(400, "Give after or before, not both")
    return await listing.list_jobs(
        call.database, job_filter_of(call, filter_of(call)), redactor_of(call), order=asked.order,
        after=asked.after, before=asked.before, limit=asked.limit, with_payload=asked.payload,
        search_running=asked.search,
    )  # fmt: skip


async def count_jobs(call: Call) -> Count:
    call.query(FilterQuery)
    return await listing.count_exactly(call.database, job_filter_of(call, filter_of(call)))


async def complete(call: Call) -> Completion:
    return Completion(await filters.complete(call.database, call.query(CompletionQuery).q))


async def export_jobs(call: Call) -> Response:
    asked = call.query(ExportQuery)
    found = await listing.export_jobs(
        call.database, job_filter_of(call, filter_of(call)), redactor_of(call), asked.format,
        order=asked.order, after=asked.after, limit=asked.limit,
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
    Route(
        method="GET", path=f"{API}/jobs", handler=list_jobs, permission="jobs.read", query=JobsQuery,
        answer=JobPage, summary="Jobs that match a filter, one page",
    ),
    Route(
        method="GET", path=f"{API}/jobs/count", handler=count_jobs, permission="jobs.read",
        query=FilterQuery, answer=Count, summary="How many jobs match, counted for up to ten seconds",
    ),
    Route(
        method="GET", path=f"{API}/jobs/export", handler=export_jobs, permission="jobs.read",
        query=ExportQuery, media_type="application/jsonl",
        summary="Jobs as JSON Lines or CSV, up to 10,000; the header X-Next goes on",
    ),
    Route(
        method="GET", path=f"{API}/jobs/completion", handler=complete, permission="jobs.read",
        query=CompletionQuery, answer=Completion, summary="Suggestions for the filter box",
    ),
]  # fmt: skip
