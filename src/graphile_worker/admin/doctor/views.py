"""Doctor: findings with what may help; About: what the dashboard runs on; probes and metrics for programs."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from starlette.responses import PlainTextResponse, Response

from ...diagnostics.finding import size
from ...errors.text import message_of
from ..answers import Page, Redirect, confirmation
from ..audit.recording import actor_of
from ..database import WORKERS
from ..live.hub import DOCTOR, hubs_of
from ..security.identity import PERMISSIONS
from ..web.call import Call
from ..web.routes import Route
from . import queries
from .queries import About, DoctorReport, MaintenanceAnswer, MaintenanceRequest

logger = logging.getLogger("graphile_worker.admin")

MAX_AGE = 10.0
"""Seconds for which findings are shared: one examination sends some forty statements."""
RECOVERY = frozenset({WORKERS})
TOPICS = ("doctor", "overview", "workers", "audit")
Work = Callable[..., Awaitable[MaintenanceAnswer]]
TITLES = {
    "sweep": ("Recover the jobs of dead workers now?", "Sweep"),
    "cleanup": ("Delete unused queues?", "Clean up"),
    "migrate": ("Upgrade the schema?", "Migrate"),
}


async def doctor(call: Call) -> Page:
    found = await call.hub.shared(
        DOCTOR,
        lambda: queries.examine_database(call.database, call.hub.redactor),
        max_age=MAX_AGE,
        topic="doctor",
    )
    return Page("doctor.html", "Doctor", here="doctor", values={"found": found}, answer=found)


async def about(call: Call) -> Page:
    found = await queries.about(call.database, call.identity, _settings(call))
    values = {"about": found, "size": size, "all_permissions": sorted(PERMISSIONS)}
    return Page("about.html", "About", here="about", values=values, answer=found)


def _settings(call: Call) -> dict[str, str]:
    """How this dashboard was set up, in words. No secrets."""
    settings = call.app.settings
    hosts = settings.allowed_hosts
    return {
        "environment": settings.environment or "not named",
        "read-only": "yes" if call.database.is_read_only else "no",
        "databases": str(len(call.app.databases)),
        "host names accepted": "any" if hosts is None else ", ".join(hosts),
        "redacted in payloads": ", ".join(settings.redact) or "the usual names only",
        "links on jobs": ", ".join(settings.job_links) or "none",
    }


async def sweep(call: Call, wanted: MaintenanceRequest) -> Page | Redirect:
    return await _maintain(call, wanted, queries.sweep, "sweep")


async def cleanup(call: Call, wanted: MaintenanceRequest) -> Page | Redirect:
    return await _maintain(call, wanted, queries.cleanup, "cleanup")


async def migrate(call: Call, wanted: MaintenanceRequest) -> Page | Redirect:
    return await _maintain(call, wanted, queries.migrate, "migrate")


async def _maintain(call: Call, wanted: MaintenanceRequest, work: Work, what: str) -> Page | Redirect:
    """On a page a dry run first; the question shows what it found."""
    is_asked = not await call.is_confirmed()
    found = await work(call.database, actor_of(call), dry_run=wanted.dry_run or is_asked)
    if is_asked:
        title, submit = TITLES[what]
        return confirmation(
            title, "This is what a dry run found:", path=f"/maintenance/{what}", submit=submit,
            back="/doctor", tone="primary", points=[line[:300] for line in found.lines[:50]], here="doctor",
        )  # fmt: skip
    call.hub.publish(*TOPICS)
    return Redirect("/doctor", notice=" ".join(found.lines)[:500], answer=found)


# -- probes and metrics -------------------------------------------------------------------------------------


async def healthz(call: Call) -> Response:
    return PlainTextResponse("ok\n")


async def readyz(call: Call) -> Response:
    for database in call.app.databases:
        try:
            await database.check()
        except Exception as error:
            logger.warning("not ready: database %s: %s", database.name or "(only one)", message_of(error))
            return PlainTextResponse("not ready\n", 503)
    return PlainTextResponse("ready\n")


async def metrics(call: Call) -> PlainTextResponse:
    hubs = hubs_of(call.app)
    text = await queries.read_metrics(
        [hubs.of(database) for database in call.app.databases], call.app.settings.metrics_queues
    )
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")


ROUTES = [
    Route(
        "/doctor", doctor, "jobs.read", "Findings about the connection, the schema, the jobs and the server",
        api=True, answer=DoctorReport,
    ),
    Route(
        "/about", about, "jobs.read", "Versions, the schema and its tables, and what the user may do",
        api=True, answer=About,
    ),
    Route(
        "/maintenance/sweep", sweep, "maintenance", "Recover the jobs of dead workers", method="POST",
        needs=RECOVERY, api=True, answer=MaintenanceAnswer,
    ),
    Route(
        "/maintenance/cleanup", cleanup, "maintenance", "Delete unused queues", method="POST", api=True,
        answer=MaintenanceAnswer,
    ),
    Route(
        "/maintenance/migrate", migrate, "maintenance", "Upgrade the schema", method="POST", api=True,
        answer=MaintenanceAnswer,
    ),
    Route("/healthz", healthz, "open", "The process is running"),
    Route("/readyz", readyz, "open", "The databases answer, and have the schema"),
    Route("/metrics", metrics, "metrics.read", "Gauges about the database, for Prometheus"),
]  # fmt: skip
