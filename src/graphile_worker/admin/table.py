"""The table of routes."""

from __future__ import annotations

from .api import actions, audit, events, openapi, operations, session
from .api import failures as failures_api
from .api import jobs as jobs_api
from .api import overview as overview_api
from .api import tasks as tasks_api
from .pages import actions as action_pages
from .pages import api, failures, health, jobs, login, metrics, overview, summary, tasks
from .pages import audit as audit_pages
from .pages import operations as operation_pages
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
    *action_pages.ROUTES,
    *operation_pages.ROUTES,
    *audit_pages.ROUTES,
    *jobs.ROUTES,
    *jobs_api.ROUTES,
    *login.ROUTES,
    *health.ROUTES,
    *openapi.ROUTES,
    *api.ROUTES,
    *metrics.ROUTES,
    *operations.ROUTES,
    *audit.ROUTES,
    *failures.ROUTES,
    *failures_api.ROUTES,
)
