"""Doctor: findings with what may help; About: what the dashboard runs on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ...diagnostics.finding import size
from ..answers import Page, Redirect, confirmation
from ..audit.recording import actor_of
from ..security.identity import PERMISSIONS
from ..web.call import Call
from ..web.routes import API, Route
from . import MaintenanceAnswer, MaintenanceForm, queries
from .api import TOPICS, about, findings

Work = Callable[..., Awaitable[MaintenanceAnswer]]
TITLES = {
    "sweep": ("Recover the jobs of dead workers now?", "Sweep"),
    "cleanup": ("Delete unused queues?", "Clean up"),
    "migrate": ("Upgrade the schema?", "Migrate"),
}


async def doctor_page(call: Call) -> Page:
    found = await findings(call)
    return Page("doctor.html", "Doctor", here="doctor", values={"found": found})


async def about_page(call: Call) -> Page:
    found = await about(call)
    values = {"about": found, "size": size, "all_permissions": sorted(PERMISSIONS)}
    return Page("about.html", "About", here="about", values=values)


async def sweep(call: Call) -> Page | Redirect:
    return await _maintain(call, queries.sweep, "sweep")


async def cleanup(call: Call) -> Page | Redirect:
    return await _maintain(call, queries.cleanup, "cleanup")


async def migrate(call: Call) -> Page | Redirect:
    return await _maintain(call, queries.migrate, "migrate")


async def _maintain(call: Call, work: Work, what: str) -> Page | Redirect:
    """A dry run first; the confirmation shows what it found."""
    form = await call.form(MaintenanceForm)
    if not form.confirmed:
        found = await work(call.database, actor_of(call), dry_run=True)
        title, submit = TITLES[what]
        return confirmation(
            title, "This is what a dry run found:", path=f"/maintenance/{what}", submit=submit,
            back="/doctor", tone="primary", points=[line[:300] for line in found.lines[:50]], here="doctor",
        )  # fmt: skip
    answer = await work(call.database, actor_of(call), dry_run=False)
    call.hub.publish(*TOPICS)
    return Redirect("/doctor", notice=" ".join(answer.lines)[:500])


ROUTES = [
    Route(
        method="GET", path="/doctor", handler=doctor_page, permission="jobs.read", summary="Doctor",
        json_of=f"{API}/doctor",
    ),
    Route(
        method="GET", path="/about", handler=about_page, permission="jobs.read", summary="About",
        json_of=f"{API}/about",
    ),
    Route(
        method="POST", path="/maintenance/sweep", handler=sweep, permission="maintenance",
        summary="Recover the jobs of dead workers", body=MaintenanceForm,
    ),
    Route(
        method="POST", path="/maintenance/cleanup", handler=cleanup, permission="maintenance",
        summary="Delete unused queues", body=MaintenanceForm,
    ),
    Route(
        method="POST", path="/maintenance/migrate", handler=migrate, permission="maintenance",
        summary="Upgrade the schema", body=MaintenanceForm,
    ),
]  # fmt: skip
