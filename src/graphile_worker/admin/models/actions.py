"""Actions on jobs: what can be asked, and what became of each job."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, get_args

import msgspec

from ..permissions import Permission

ActionName = Literal["run_now", "retry", "reschedule", "give_up", "delete", "cancel", "add_again"]
ACTIONS: tuple[ActionName, ...] = get_args(ActionName)
PERMISSION_FOR: dict[ActionName, Permission] = {
    "run_now": "jobs.retry",
    "retry": "jobs.retry",
    "reschedule": "jobs.reschedule",
    "give_up": "jobs.cancel",
    "delete": "jobs.delete",
    "cancel": "jobs.cancel",
    "add_again": "jobs.add",
}
MAX_IDS = 200
"""Jobs of one action; more are an operation."""

Why = Literal["running", "gone", "changed", "busy", "not allowed"]
"""Why a job was left as it was."""
Smallint = Annotated[int, msgspec.Meta(ge=-32768, le=32767)]
Attempts = Annotated[int, msgspec.Meta(ge=0, le=32767)]
Reason = Annotated[str, msgspec.Meta(max_length=500)]


class ActionValues(msgspec.Struct, frozen=True, kw_only=True):
    """What an action needs besides the jobs; each uses only some of it."""

    run_at: datetime | None = None
    """reschedule: when to run; without a time zone, UTC."""
    priority: Smallint | None = None
    """reschedule."""
    attempts: Attempts | None = None
    """reschedule: how many attempts count as used."""
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=32767)] | None = None
    """reschedule."""
    one_more: bool = False
    """retry: allow one attempt more, in place of all of them again."""
    reason: Reason = ""
    """give_up and cancel: stored with the jobs."""


class ActionRequest(ActionValues, frozen=True, kw_only=True):
    """An action on up to 200 jobs."""

    action: ActionName
    ids: Annotated[list[int], msgspec.Meta(min_length=1, max_length=MAX_IDS)]
    state: Literal["ready", "scheduled", "failed"] | None = None
    """Only jobs that are still in this state; others are skipped as changed."""


class Skipped(msgspec.Struct, frozen=True):
    """A job that was left as it was."""

    id: int
    why: Why
    detail: str = ""


class ActionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each job: every id is in `changed` or in `skipped`."""

    action: ActionName
    changed: list[int]
    skipped: list[Skipped] = []
    retried: list[int] = []
    """run_now: those of `changed` that had no attempts left, and got all of them again."""
    asked: list[int] = []
    """cancel: those of `changed` that are running; their workers were asked to end them."""
    added: list[int] = []
    """add_again: the ids of the new jobs."""
    undo: str | None = None
    """The id in the audit, for `POST /audit/{id}/undo`; None if it cannot be undone."""
    message: str = ""
    """What happened, in one sentence."""
