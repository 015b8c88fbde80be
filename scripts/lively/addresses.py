"""The addresses of everything that the dashboard can show, from its table of routes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from graphile_worker.admin.web.routes import API, Route

VALUE = re.compile(r"\{(?P<name>\w+)(?::\w+)?\}")
STREAMS = ("/events", f"{API}/events")
FILES = ("/jobs/export", "/jobs/{id:int}/payload")
"""Routes whose answer is a file to save."""
WHOLE = (f"{API}/jobs/count", f"{API}/jobs/export", "/jobs/export")
"""Routes for those who ask for everything that matches a filter, and wait for it."""
NO_PAGES = (
    f"{API}/", "/metrics", "/healthz", "/readyz", "/login", "/logout", "/static", "/jobs/{id:int}/reveal",
    *FILES, *STREAMS,
)  # fmt: skip
_TASKS = "select identifier from _private_tasks order by id"
_QUEUES = "select queue_name from _private_job_queues order by id"
_JOBS = "select id from _private_jobs order by attempts = max_attempts desc, id desc"
_GROUPS = "select fingerprint from _private_py_error_groups order by errors desc"
_WORKERS = "select id from _private_py_workers order by id"
_SCHEDULES = "select identifier from _private_known_crontabs order by identifier"
FOUND = {
    "/task": ("name", _TASKS),
    "/queue": ("name", _QUEUES),
    "/queues/concurrency": ("name", _QUEUES),
    "/schedule": ("identifier", _SCHEDULES),
    "/schedules/pause": ("identifier", _SCHEDULES),
    "/schedules/{identifier}": ("identifier", _SCHEDULES),
    "/worker": ("id", _WORKERS),
    "/workers/concurrency": ("id", _WORKERS),
    "/workers/{id}": ("id", _WORKERS),
    "/failures/{fingerprint}": ("fingerprint", _GROUPS),
    "/jobs/{id}": ("id", _JOBS),
    "/operations/{id}": ("id", "select id from _private_py_operations order by id desc"),
    "/audit/{id}": ("id", "select id from _private_py_audit order by action = 'pause_queue' desc, id desc"),
    "/jobs/actions": ("ids", _JOBS),
    "/operations/new": ("q", "select 'task:' || to_json(identifier)::text from _private_tasks order by id"),
    "/tasks/pause": ("name", _TASKS),
    "/queues/pause": ("name", _QUEUES),
}
"""Pages about one thing: the value that they need, and a statement that finds some.

Longer paths, such as `/jobs/{id}/explanation`, get the values of the longest one here that they begin with.
"""

FURTHER = {"/jobs/actions": {"action": "reschedule"}, "/operations/new": {"action": "retry"}}
"""Values that a page needs besides."""


def is_page(route: Route) -> bool:
    """Whether a route shows a page to a person."""
    return route.method == "GET" and route.answer is None and not route.path.startswith(NO_PAGES)


def is_readable(route: Route) -> bool:
    """Whether a route answers a question, as a page or as JSON, and then ends."""
    return route.method == "GET" and not route.path.startswith((*STREAMS, "/login", "/logout"))


def subject_of(path: str) -> tuple[str, str] | None:
    """The name and the statement for the value that a path needs, if it needs one."""
    plain = re.sub(r":\w+\}", "}", path).removeprefix(API)
    if "{" not in plain:
        return FOUND.get(plain)
    return next(
        (FOUND[known] for known in sorted(FOUND, key=len, reverse=True) if plain.startswith(known)), None
    )


def is_about_one_thing(path: str) -> bool:
    return "{" in path or subject_of(path) is not None


def addresses(path: str, name: str, values: Sequence[Any]) -> list[str]:
    """The path with each of these values, in its braces or its query string."""
    if placeholder := VALUE.search(path):
        return [path.replace(placeholder[0], quote(str(value), safe="")) for value in values]
    further = FURTHER.get(path, {})
    return [f"{path}?{urlencode({name: value, **further})}" for value in values]
