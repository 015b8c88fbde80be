"""Identity: who makes a request, and what they may do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from .permissions import PERMISSIONS, ROLES, Permission


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A person or a program that was let in."""

    name: str
    permissions: frozenset[Permission] = PERMISSIONS
    how: str = ""
    """How they signed in, for the audit: `password`, `token`, `link`, `header`, or what `authorize` says."""

    @classmethod
    def with_role(cls, name: str, role: str, how: str = "") -> Identity:
        """An identity with the permissions of `viewer`, `operator` or `admin`."""
        return cls(name=name, permissions=ROLES[role], how=how)

    def may(self, permission: Permission) -> bool:
        return permission in self.permissions


Authorize = Callable[[Request], Identity | Response | Awaitable[Identity | Response | None] | None]
"""Returns who makes the request, or an answer such as a redirect to a sign-in page, or None to refuse."""


def everyone_may(request: Request) -> Identity:
    """For `authorize`: lets everyone in who can reach the dashboard, and lets them do everything."""
    return Identity(name="anonymous", how="open")
