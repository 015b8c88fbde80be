"""The addresses of all pages, found in the table of routes, so that a new page is tested by itself."""

from __future__ import annotations

import re
from urllib.parse import quote, urlencode

import pytest

from browser.site import SCHEMA, Site
from graphile_worker.admin.table import ROUTES

VALUE = re.compile(r"\{(?P<name>\w+)(?::\w+)?\}")
NO_PAGES = ("/api/v1", "/events", "/metrics", "/healthz", "/readyz", "/login", "/logout", "/static")
FOUND = {
    "/task": ("name", f"select identifier from {SCHEMA}._private_tasks order by id"),
    "/queue": ("name", f"select queue_name from {SCHEMA}._private_job_queues order by id"),
    "/jobs/{id}": (
        "id",
        f"select id from {SCHEMA}._private_jobs order by attempts = max_attempts desc, id desc",
    ),
    "/failures/{fingerprint}": (
        "fingerprint",
        f"select fingerprint from {SCHEMA}._private_py_error_groups order by errors desc",
    ),
    "/workers/{id}": ("id", f"select id from {SCHEMA}._private_py_workers order by id"),
    "/schedules/{identifier}": (
        "identifier",
        f"select identifier from {SCHEMA}._private_known_crontabs order by identifier",
    ),
}
"""Pages about one thing: the value that they need, and a statement that finds one."""


def page_paths() -> list[str]:
    """The path of every route that shows a page, as the table has it."""
    return sorted(
        {
            route.path
            for route in ROUTES
            if route.method == "GET" and route.answer is None and not route.path.startswith(NO_PAGES)
        }
    )


def address_of(site: Site, path: str) -> str:
    """The address of a page, with a value that exists in the site's database."""
    return addresses_of(site, path, limit=1)[0]


def addresses_of(site: Site, path: str, *, limit: int = 1000) -> list[str]:
    """The addresses of a page for everything in the site's database that it can show."""
    plain = re.sub(r":\w+\}", "}", path)
    if plain not in FOUND:
        if "{" in plain:
            pytest.skip(f"no value is known for {path}")
        return [path]
    name, statement = FOUND[plain]
    found = [str(row[0]) for row in site.rows(f"{statement} limit {limit}")]
    if not found:
        pytest.skip(f"{path}: there is nothing to show")
    if placeholder := VALUE.search(path):
        return [path.replace(placeholder[0], quote(value, safe="")) for value in found]
    return [f"{path}?{urlencode({name: value})}" for value in found]
