"""The table of routes."""

from __future__ import annotations

from .api import actions, audit, events, operations, session
from .api import jobs as jobs_api
from .api import overview as overview_api
from .api import queues as queues_api
from .api import schedules as schedules_api
from .api import tasks as tasks_api
from .api import workers as workers_api
from .pages import health, jobs, login, overview, queues, schedules, summary, tasks, workers
from .routes import Route

ROUTES: tuple[Route, ...] = (
    *overview.ROUTES,
    *overview_api.ROUTES,
    *summary.ROUTES,
    *tasks.ROUTES,
    *tasks_api.ROUTES,
    *queues.ROUTES,
    *queues_api.ROUTES,
    *workers.ROUTES,
    *workers_api.ROUTES,
    *schedules.ROUTES,
    *schedules_api.ROUTES,
    *session.ROUTES,
    *actions.ROUTES,
    *events.ROUTES,
    *jobs.ROUTES,
    *jobs_api.ROUTES,
    *login.ROUTES,
    *health.ROUTES,
    *operations.ROUTES,
    *audit.ROUTES,
)
