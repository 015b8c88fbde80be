"""The table of routes."""

from __future__ import annotations

from .api import actions, audit, events, operations, session
from .pages import health, login, overview
from .routes import Route

ROUTES: tuple[Route, ...] = (
    *overview.ROUTES,
    *session.ROUTES,
    *actions.ROUTES,
    *operations.ROUTES,
    *audit.ROUTES,
    *events.ROUTES,
    *login.ROUTES,
    *health.ROUTES,
)
