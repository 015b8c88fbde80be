"""The table of routes."""

from __future__ import annotations

from .api import actions, events, session
from .api import jobs as jobs_api
from .pages import health, jobs, login, overview
from .routes import Route

ROUTES: tuple[Route, ...] = (
    *overview.ROUTES,
    *session.ROUTES,
    *actions.ROUTES,
    *events.ROUTES,
    *jobs.ROUTES,
    *jobs_api.ROUTES,
    *login.ROUTES,
    *health.ROUTES,
)
