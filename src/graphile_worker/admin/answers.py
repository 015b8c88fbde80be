"""What handlers return: a page, JSON, a redirect, or a problem that the person can act on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Page:
    """A template with its values; the layout adds the frame.

    `here` is the entry of the navigation that is current: overview, jobs, failures, tasks, queues, workers,
    schedules, doctor, audit or about.
    """

    template: str
    title: str
    here: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Redirect:
    """To another page of the dashboard, after a form was sent. `notice` is shown there once.

    `path` is below the root of the database that the call is about, as for `call.url`.
    """

    path: str
    notice: str = ""
    undo: str = ""
    """The id of the audit entry that can be undone; the notice offers it."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What the page before this one wants to say; templates have it as `notice`, or None."""

    text: str
    undo: str = ""
    database: str = ""
    """The name of the database that it is about."""


@dataclass(frozen=True, slots=True)
class Download:
    """A file to save."""

    content: bytes
    name: str
    media_type: str


class Problem(Exception):
    """A refusal that the person can act on; a problem document (RFC 9457) in the API, a plain page else."""

    def __init__(self, status: int, title: str, detail: str = "", **more: Any) -> None:
        super().__init__(title)
        self.status = status
        self.title = title
        self.detail = detail
        self.more = more


def not_found(what: str) -> Problem:
    return Problem(404, f"There is no {what}")


def not_allowed(permission: str) -> Problem:
    return Problem(403, "You may not do this", f"It needs the permission {permission}.")
