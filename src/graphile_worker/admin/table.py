"""The table of routes."""

from __future__ import annotations

from .api import actions, events, openapi, session
from .pages import api, health, login, overview
from .routes import Route

ROUTES: tuple[Route, ...] = (
    *overview.ROUTES,
    *session.ROUTES,
    *actions.ROUTES,
    *events.ROUTES,
    *login.ROUTES,
    *health.ROUTES,
    *openapi.ROUTES,
    *api.ROUTES,
)
