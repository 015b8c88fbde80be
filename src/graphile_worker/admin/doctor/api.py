"""`/api/v1/doctor`, `/api/v1/about` and `/api/v1/maintenance`: findings, and what may help."""

from __future__ import annotations

from ..audit.recording import actor_of
from ..web.call import Call
from ..web.routes import API, Route
from . import DOCTOR, About, DoctorReport, MaintenanceAnswer, MaintenanceRequest, queries
from . import queries as about_service

MAX_AGE = 10.0
"""Seconds for which findings are shared: one examination sends some forty statements."""
TOPICS = ("doctor", "overview", "workers", "audit")


async def findings(call: Call) -> DoctorReport:
    return await call.hub.shared(
        DOCTOR,
        lambda: queries.examine_database(call.database, call.hub.redactor),
        max_age=MAX_AGE,
        topic="doctor",
    )


async def about(call: Call) -> About:
    return await about_service.about(call.database, call.identity, settings_of(call))


def settings_of(call: Call) -> dict[str, str]:
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


async def sweep(call: Call) -> MaintenanceAnswer:
    wanted = await call.json(MaintenanceRequest)
    found = await queries.sweep(call.database, actor_of(call), dry_run=wanted.dry_run)
    call.hub.publish(*TOPICS)
    return found


async def cleanup(call: Call) -> MaintenanceAnswer:
    wanted = await call.json(MaintenanceRequest)
    found = await queries.cleanup(call.database, actor_of(call), dry_run=wanted.dry_run)
    call.hub.publish(*TOPICS)
    return found


async def migrate(call: Call) -> MaintenanceAnswer:
    wanted = await call.json(MaintenanceRequest)
    found = await queries.migrate(call.database, actor_of(call), dry_run=wanted.dry_run)
    call.hub.publish(*TOPICS)
    return found


ROUTES = [
    Route(
        method="GET", path=f"{API}/doctor", handler=findings, permission="jobs.read", answer=DoctorReport,
        summary="Findings about the connection, the schema, the jobs and the server",
    ),
    Route(
        method="GET", path=f"{API}/about", handler=about, permission="jobs.read", answer=About,
        summary="Versions, the schema and its tables, and what the user may do",
    ),
    Route(
        method="POST", path=f"{API}/maintenance/sweep", handler=sweep, permission="maintenance",
        body=MaintenanceRequest, answer=MaintenanceAnswer, summary="Recover the jobs of dead workers",
    ),
    Route(
        method="POST", path=f"{API}/maintenance/cleanup", handler=cleanup, permission="maintenance",
        body=MaintenanceRequest, answer=MaintenanceAnswer, summary="Delete unused queues",
    ),
    Route(
        method="POST", path=f"{API}/maintenance/migrate", handler=migrate, permission="maintenance",
        body=MaintenanceRequest, answer=MaintenanceAnswer, summary="Upgrade the schema",
    ),
]  # fmt: skip
