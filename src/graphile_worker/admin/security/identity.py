"""Identity: who makes a request, and what they may do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, get_args

from starlette.requests import Request
from starlette.responses import Response

Permission = Literal[
    "jobs.read",
    "payload.read",
    "jobs.retry",
    "jobs.reschedule",
    "jobs.cancel",
    "jobs.delete",
    "jobs.edit",
    "jobs.add",
    "queues.pause",
    "tasks.pause",
    "workers.unlock",
    "workers.stop",
    "schedules.run",
    "schedules.pause",
    "maintenance",
    "audit.read",
    "metrics.read",
]
PERMISSIONS: frozenset[Permission] = frozenset(get_args(Permission))

Access = Literal["open", "signed_in"]
"""In place of a permission: routes for everyone, and for everyone who is signed in."""

VIEWER: frozenset[Permission] = frozenset({"jobs.read", "audit.read", "metrics.read"})
OPERATOR: frozenset[Permission] = VIEWER | {
    "jobs.retry", "jobs.reschedule", "jobs.cancel", "queues.pause", "tasks.pause", "schedules.run",
    "schedules.pause",
}  # fmt: skip
ROLES: dict[str, frozenset[Permission]] = {
    "viewer": VIEWER,
    "operator": OPERATOR,
    "admin": PERMISSIONS,
    "metrics": frozenset({"metrics.read"}),
}
"""`viewer` reads, with payloads redacted; `operator` also retries, reschedules, cancels, pauses and runs;
`admin` does all; `metrics` reads `/metrics` only, for a token."""
READING: frozenset[Permission] = frozenset({"jobs.read", "payload.read", "audit.read", "metrics.read"})
"""Permissions that change nothing, the ones left in a read-only dashboard."""
PERMISSION_FOR: dict[str, Permission] = {
    "run_now": "jobs.retry",
    "retry": "jobs.retry",
    "reschedule": "jobs.reschedule",
    "give_up": "jobs.cancel",
    "delete": "jobs.delete",
    "cancel": "jobs.cancel",
    "add_again": "jobs.add",
}
"""What each action on jobs needs."""


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
