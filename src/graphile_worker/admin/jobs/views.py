"""Jobs: the list with its filter, and files of it."""

from __future__ import annotations

from ...database.statements.job_filter import JOB_STATES
from ..answers import Page, Problem
from ..security.identity import Permission
from ..web.call import Call
from ..web.routes import API, Route
from ..web.show import one_line
from . import JobPage, filters, listing
from .api import ExportQuery, JobsQuery, export_jobs, filter_of, job_filter_of, redactor_of
from .filters import NAMES, PAYLOAD, Filter

ORDERS = (("newest", "Newest first"), ("oldest", "Oldest first"), ("run_order", "Run order"))
STATE_TABS = (("", "All"), *((state, state.capitalize()) for state in JOB_STATES))
ACTIONS: tuple[tuple[str, str, Permission, str], ...] = (
    ("retry", "Retry", "jobs.retry", "r"),
    ("reschedule", "Reschedule", "jobs.reschedule", "e"),
    ("give_up", "Give up", "jobs.cancel", ""),
    ("cancel", "Cancel", "jobs.cancel", ""),
    ("delete", "Delete", "jobs.delete", ""),
)
"""Actions on a selection: name, label, permission and key."""


async def list_page(call: Call) -> Page:
    asked = call.query(JobsQuery)
    filter, problem, found = Filter(), None, None
    try:
        filter = filter_of(call)
        found = await _find(call, asked, filter)
    except Problem as error:
        if error.status not in (400, 403):
            raise
        problem = error
    async with call.database.read() as connection:
        tasks = await filters.names(connection, call.database.schema, "task", most=200)
        queues = await filters.names(connection, call.database.schema, "queue", most=100)
    text = filter.text or asked.q
    values = {
        "filter": filter, "text": text, "found": found, "problem": problem, "asked": asked,
        "orders": ORDERS, "tabs": STATE_TABS, "tasks": tasks, "queues": queues,
        "actions": _actions(call, filter), "names": NAMES, "payload_prefix": PAYLOAD,
        "links": _links(call, asked, filter, found), "one_line": one_line,
    }  # fmt: skip
    return Page(
        "jobs.html", "Jobs", here="jobs", values=values, status=200 if problem is None else problem.status,
    )  # fmt: skip


def _actions(call: Call, filter: Filter) -> list[tuple[str, str, Permission, str]]:
    """Those that may do something here: to cancel jobs that do not run needs the right to delete them."""
    spares = not call.may("jobs.delete") and filter.get("state") in ("ready", "scheduled", "failed")
    return [each for each in ACTIONS if each[0] != "cancel" or not spares]


async def _find(call: Call, asked: JobsQuery, filter: Filter) -> JobPage:
    return await listing.list_jobs(
        call.database, job_filter_of(call, filter), redactor_of(call), order=asked.order,
        after=asked.after, before=asked.before, limit=asked.limit, search_running=asked.search,
    )  # fmt: skip


def _links(call: Call, asked: JobsQuery, filter: Filter, found: JobPage | None) -> dict[str, object]:
    """Addresses of this list with one thing changed."""
    query: dict[str, object] = dict(filter.query)
    search = "true" if asked.search else None
    limit = None if asked.limit == listing.PAGE else asked.limit

    def to(path: str = "/jobs", **more: object) -> str:
        return call.url(path, **(query | {"order": asked.order, "limit": limit, "search": search} | more))

    tabs = [
        (label, call.url("/jobs", **filter.replaced(state=state).query), filter.get("state") == state)
        for state, label in STATE_TABS
    ]
    is_first = asked.after is None and asked.before is None
    return {
        "tabs": tabs,
        "next": to(after=found.next) if found is not None and found.next else "",
        "previous": to(before=found.previous) if found is not None and found.previous else "",
        "first": "" if is_first else to(),
        "here": to(after=asked.after, before=asked.before),
        "search": to(search="true"),
        "jsonl": to("/jobs/export", format="jsonl"),
        "csv": to("/jobs/export", format="csv"),
        "without": [
            (name, value, call.url("/jobs", **filter.without(name).query))
            for name, value in filter.conditions
        ],
    }


def _search(found: JobPage) -> str:
    if found.searched is None or found.searched.is_complete:
        return ""
    return f"Searched {found.searched.jobs:,} of {found.searched.of} jobs, {len(found.items)} found."


ROUTES = [
    Route(
        method="GET", path="/jobs", handler=list_page, permission="jobs.read", summary="Jobs",
        query=JobsQuery, json_of=f"{API}/jobs",
    ),
    Route(
        method="GET", path="/jobs/export", handler=export_jobs, permission="jobs.read",
        query=ExportQuery, summary="Jobs as a file",
    ),
]  # fmt: skip
