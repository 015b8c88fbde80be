"""The table of routes."""

from __future__ import annotations

from .api import actions, session
from .pages import overview
from .routes import Route

ROUTES: tuple[Route, ...] = (
    *overview.ROUTES,
    *session.ROUTES,
    *actions.ROUTES,
)
