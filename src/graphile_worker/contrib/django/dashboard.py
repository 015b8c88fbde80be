"""The dashboard beside Django: Django's sessions decide who gets in.

admin = admin_app(connection_string=..., authorize=admin_authorize)
application = mount("/jobs", admin, get_asgi_application())
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.db import close_old_connections
from starlette.requests import Request

from ...admin.security.identity import Identity


class _SessionRequest:
    """What `get_user` needs of a request."""

    def __init__(self, session: Any) -> None:
        """The session is only read: without a response of Django's, a new key would be lost."""
        session.cycle_key = session.flush = lambda: None
        self.session = session


async def admin_authorize(request: Request) -> Identity | None:
    """For `authorize`: staff who are signed in to Django. Superusers are admins, others operators.

    A session that Django would refuse is refused: one that has expired, whose user is not active or no
    longer staff, or whose password was changed.
    """
    return await sync_to_async(_identity)(request)


def _identity(request: Request) -> Identity | None:
    close_old_connections()
    try:
        engine = import_module(settings.SESSION_ENGINE)
        key = request.cookies.get(settings.SESSION_COOKIE_NAME) or None
        user: Any = get_user(_SessionRequest(engine.SessionStore(key)))  # type: ignore[arg-type,unused-ignore]
        if not (user.is_authenticated and user.is_active and user.is_staff):
            return None
        role = "admin" if user.is_superuser else "operator"
        return Identity.with_role(user.get_username(), role, "django")
    finally:
        close_old_connections()
