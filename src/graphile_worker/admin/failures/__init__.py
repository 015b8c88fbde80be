"""Failures: error groups, what their jobs have in common, and what can be done about them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from ...values.text import how_it_failed
from ..answers import Count
from ..operations import ChangeOfMany

Period = Literal["1h", "24h", "7d"]
PERIODS: dict[Period, float] = {"1h": 3600.0, "24h": 86_400.0, "7d": 604_800.0}


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of one kind from one place."""

    fingerprint: str
    task_identifier: str
    error_type: str
    message: str
    """Of the latest error."""
    place: str
    first_at: datetime | None
    last_at: datetime | None
    errors: int
    """Failed attempts in all."""
    attempts: Count
    """Failed attempts in the period."""
    failed: Count
    """Jobs that are permanently failed now."""
    retrying: Count
    """Jobs that wait for their next attempt."""
    bars: list[int]
    """Failed attempts over the period."""
    last_job_id: int
    is_new: bool = False
    new_since: str | None = None
    """The version of the application with which it began, if earlier ones did not have it."""
    first_version: str | None = None
    last_version: str | None = None
    versions: list[str] = []
    hosts: list[str] = []
    only_on: str | None = None
    """What all of its errors share and others do not: a host, or a version."""
    muted_by: str | None = None

    @property
    def title(self) -> str:
        return f"{self.error_type}: {self.message}" if self.error_type else self.message


class FailureList(msgspec.Struct, frozen=True, kw_only=True):
    """Error groups."""

    items: list[FailureGroup]
    muted: list[FailureGroup] = []
    next: str | None = None
    period: Period = "24h"
    note: str = ""
    """Where the list comes from, if it is not complete."""
    has_tables: bool = True


class SharedMember(msgspec.Struct, frozen=True):
    """A member of the payload that most of the failed jobs share."""

    path: str
    value: str
    jobs: int
    of: int


class GroupJob(msgspec.Struct, frozen=True):
    """A job whose latest error is of the group."""

    id: int
    state: str
    attempts: int
    max_attempts: int
    run_at: datetime
    failed_at: datetime | None = None
    attempts_made: int | None = None
    """How many attempts a permanently failed job had; None if that is not known."""

    @property
    def tried(self) -> str:
        """How many attempts there were."""
        if self.state == "failed":
            return how_it_failed(self.attempts_made, self.max_attempts)
        return f"{self.attempts} of {self.max_attempts}"


class FailureDetails(msgspec.Struct, frozen=True, kw_only=True):
    """One error group."""

    group: FailureGroup
    error: str
    """The latest error, with its traceback if there is one; redacted."""
    error_job_id: int | None
    shared: list[SharedMember]
    jobs: list[GroupJob]
    operation_id: int | None = None
    """A careful retry that is under way."""
    has_tables: bool = True


FailureOrder = Literal["last", "first", "name", "failed", "retrying", "attempts"]


class FailuresQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which error groups to list."""

    period: Period = "24h"
    task: Annotated[str, msgspec.Meta(max_length=200)] = ""
    order: FailureOrder = "last"
    """The largest number first, or the latest time."""
    after: Annotated[str, msgspec.Meta(max_length=60)] = ""
    """`next` of the page before, which had the same order."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 25


class GroupRequest(ChangeOfMany, frozen=True, kw_only=True):
    """An action on all jobs of a group."""

    action: Literal["carefully", "retry", "reschedule", "give_up", "delete"]
    """`carefully` retries some jobs first, and then the others, until one fails."""
    canary: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    """carefully: how many jobs to retry first."""

    @property
    def is_careful(self) -> bool:
        return self.action == "carefully"

    @property
    def change(self) -> Literal["retry", "reschedule", "give_up", "delete"]:
        """What is done to each job."""
        return "retry" if self.action == "carefully" else self.action


class GroupQuestion(GroupRequest, frozen=True, kw_only=True):
    """The same, before it is confirmed."""

    action: Literal["carefully", "retry", "reschedule", "give_up", "delete"] = "carefully"


class MuteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Hide a group until it occurs in a newer version; without versions, for a day."""

    reason: Annotated[str, msgspec.Meta(max_length=500)] = ""


class Muted(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a group is hidden."""

    fingerprint: str
    is_muted: bool
    version: str | None = None
    until: datetime | None = None
