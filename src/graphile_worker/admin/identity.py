"""Identity: who makes a request, and what they may do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response

from .permissions import PERMISSIONS, ROLES, Permission


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A person or a program that was let in."""

    name: str
    permissions: frozenset[Permission] = PERMISSIONS
    how: str = ""
    """How they signed in, for the audit: `password`, `token`, `link`, `header`, or what `authorize` says.

    `token` means a bearer token, which no browser sends by itself: such a request needs no origin, and may
    change something through the API only.
    """
    expires_at: datetime | None = None
    """When the session ends, if it does; streams end then too."""
    session: str = ""
    """The id of the session, if the dashboard's own sign-in made one."""

    @classmethod
    def with_role(cls, name: str, role: str, how: str = "") -> Identity:
        """An identity with the permissions of `viewer`, `operator` or `admin`."""
        return cls(name=name, permissions=ROLES[role], how=how)

    def may(self, permission: Permission) -> bool:
        return permission in self.permissions

    def limited_to(self, permissions: frozenset[Permission]) -> Identity:
        """The same identity without other permissions."""
        return replace(self, permissions=self.permissions & permissions)


Authorize = Callable[[Request], Identity | Response | Awaitable[Identity | Response | None] | None]
"""Returns who makes the request, or an answer such as a redirect to a sign-in page, or None to refuse."""


NO_ONE = Identity(name="", permissions=frozenset(), how="")
"""Who makes a request that needs no sign-in."""


def everyone_may(request: Request) -> Identity:
    """For `authorize`: lets everyone in who can reach the dashboard, and lets them do everything."""
    return Identity(name="anonymous", how="open")
