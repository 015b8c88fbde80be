"""The table of routes."""

from __future__ import annotations

from .api import actions, audit, events, operations, session
from .api import job as job_api
from .api import jobs as jobs_api
from .api import overview as overview_api
from .api import tasks as tasks_api
from .pages import health, job, jobs, login, new_job, overview, summary, tasks
from .routes import Route

ROUTES: tuple[Route, ...] = (
    *overview.ROUTES,
    *overview_api.ROUTES,
    *summary.ROUTES,
    *tasks.ROUTES,
    *tasks_api.ROUTES,
    *session.ROUTES,
    *actions.ROUTES,
    *events.ROUTES,
    *jobs.ROUTES,
    *jobs_api.ROUTES,
    *new_job.ROUTES,
    *job.ROUTES,
    *job_api.ROUTES,
    *login.ROUTES,
    *health.ROUTES,
    *operations.ROUTES,
    *audit.ROUTES,
)
