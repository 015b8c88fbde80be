"""What a person may do in the dashboard: one permission for each kind of act, and three roles."""

from __future__ import annotations

from typing import Literal, get_args

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
