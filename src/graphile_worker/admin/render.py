"""Templates: Jinja2 with autoescape, and the values that every page has."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from . import charts
from .answers import Page
from .call import Call

NAVIGATION = (
    ("overview", "Overview", "/"),
    ("jobs", "Jobs", "/jobs"),
    ("failures", "Failures", "/failures"),
    ("tasks", "Tasks", "/tasks"),
    ("queues", "Queues", "/queues"),
    ("workers", "Workers", "/workers"),
    ("schedules", "Schedules", "/schedules"),
    ("doctor", "Doctor", "/doctor"),
    ("audit", "Audit", "/audit"),
)


@cache
def environment() -> Environment:
    found = Environment(
        loader=PackageLoader("graphile_worker.admin"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals["charts"] = charts
    return found


def render(call: Call, page: Page) -> str:
    """The page as HTML."""
    return environment().get_template(page.template).render(frame(call, page), **page.values)


def frame(call: Call, page: Page) -> dict[str, Any]:
    """What the layout needs, the same for every page."""
    return {
        "call": call,
        "url": call.url,
        "static": call.app.static.url,
        "may": call.may,
        "title": page.title,
        "here": page.here,
        "navigation": NAVIGATION,
    }
