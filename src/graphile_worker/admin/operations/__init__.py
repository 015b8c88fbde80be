"""Operations: changes to all jobs that match a filter, in steps that go on without a browser."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from ..answers import Count
from ..jobs.changing import ActionName, ActionValues

OperationState = Literal["running", "stopping", "stopped", "done", "failed"]
Stage = Literal["all", "canary", "watching", "rest", "settling"]
"""`all` works through the jobs. A careful retry sends some first (`canary`), waits for them (`watching`),
sends the others (`rest`) and waits for those (`settling`)."""
OperationAction = Literal[ActionName, "undo"]
Rate = Annotated[float, msgspec.Meta(ge=0.1, le=100_000)]
CAREFUL_RATE = 50.0
"""Jobs per second of a careful retry, if nothing else is wanted."""


def typed_number(text: str) -> int | None:
    """A number as people type it: `4,342`."""
    digits = text.replace(",", "").replace(".", "").strip()
    return int(digits) if digits.isdecimal() and len(digits) <= 15 else None


class Chosen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which jobs an operation is about: one of these."""

    filter: str | None = None
    """A filter as in the search box of the page Jobs."""
    shown: str | None = None
    """The filter without secrets, if it has any: all who may read jobs see it."""
    hides_secrets: bool = False
    """Whether the filter is searched as for a person who may not see secrets."""
    only_running: bool = False
    """Whether jobs that do not run are left: cancelling would delete them, which the person may not."""
    fingerprint: str | None = None
    """The jobs of an error group."""
    audit_id: int | None = None
    """The jobs of an action that is undone."""


class ChangeOfMany(ActionValues, frozen=True, kw_only=True):
    """A change to many jobs: how fast, and whether it was confirmed."""

    rate: Rate | None = None
    """Jobs per second at most."""
    dry_run: bool = False
    """Only say what would happen."""
    confirm: int | None = None
    """The number of jobs as the dry run said it; needed for more than 1,000 jobs, and in production."""
    typed: Annotated[str, msgspec.Meta(max_length=40)] = ""
    """The same, as a person typed it."""

    @property
    def number(self) -> int | None:
        """The number of jobs that was confirmed."""
        return self.confirm if self.confirm is not None else typed_number(self.typed)


class OperationRequest(ChangeOfMany, frozen=True, kw_only=True):
    """A change to all jobs that match a filter."""

    action: ActionName
    filter: Annotated[str, msgspec.Meta(max_length=2000)] = ""
    """As in the search box of the page Jobs: `state:failed task:send_email`."""
    everything: bool = False
    """Needed with an empty filter, which matches all jobs."""


class OperationForm(OperationRequest, frozen=True, kw_only=True):
    """The same, as a page asks for it. Its filter is called `q`, as on the page Jobs."""

    action: ActionName = "retry"
    q: Annotated[str, msgspec.Meta(max_length=2000)] = ""
    back: Annotated[str, msgspec.Meta(max_length=4000)] = ""


class OperationsQuery(msgspec.Struct, frozen=True):
    """One page of the operations, the latest first."""

    after: int | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 50


class CarefulRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A careful retry of an error group: some jobs first, then the others, until one fails."""

    canary: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    """How many jobs to retry first."""
    rate: Rate = CAREFUL_RATE
    """Jobs per second after they have succeeded."""
    confirm: int | None = None
    """The number of jobs; needed for more than 1,000 jobs, and in production."""
    dry_run: bool = False
    """Only say what would happen."""


class Example(msgspec.Struct, frozen=True):
    """A job that would be changed."""

    id: int
    task_identifier: str
    state: str


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """What an operation would do."""

    action: OperationAction
    target: str
    count: Count
    """How many jobs match."""
    running: int = 0
    """How many of those counted are running, and would be skipped."""
    examples: list[Example] = []
    seconds: float | None = None
    """How long it would take, roughly."""
    needs_confirmation: bool = False
    """Whether `confirm` must repeat the number."""
    can_undo: bool = True
    note: str = ""
    """Of an error group: which of its jobs cannot be found, and why."""
    up_to: int = 0


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """A change to many jobs, and how far it is."""

    id: int
    action: OperationAction
    target: str
    state: OperationState
    stage: Stage
    expected: Count
    changed: int
    skipped: int
    succeeded: int
    """Of a careful retry: jobs that completed since."""
    gone: int
    """Of a careful retry: jobs that are no longer there and did not complete: deleted, cancelled, expired."""
    waiting: int
    """Of a careful retry: jobs whose outcome is not known yet."""
    rate: float | None
    note: str | None
    """Why it stopped or failed."""
    values: dict[str, Any]
    chosen: Chosen
    who: str
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    undo: str | None
    """The id in the audit, for `POST /audit/{id}/undo`; None if it cannot be undone."""
    is_waiting_for_runner: bool = False
    """The dashboard that carries it out has gone; another one goes on soon."""
    message: str = ""
    """The numbers at the end: how many jobs were changed, and why others were not."""

    @property
    def is_active(self) -> bool:
        return self.finished_at is None

    @property
    def is_careful(self) -> bool:
        return self.stage != "all"

    @property
    def is_complete(self) -> bool:
        """Whether it ended with all jobs changed that were there."""
        return self.state == "done" and not self.skipped

    @property
    def share(self) -> float:
        """How much of it is done, from 0 to 1."""
        if self.state == "done":
            return 1.0
        return min(1.0, (self.changed + self.skipped) / max(1, self.expected.value))

    @property
    def per_second(self) -> float:
        """Jobs per second on average."""
        seconds = ((self.finished_at or self.updated_at) - self.created_at).total_seconds()
        return self.changed / seconds if seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """How long it goes on at this pace; None if that is not known."""
        if not self.is_active or not self.per_second or self.stage in ("canary", "watching", "settling"):
            return None
        return max(0, self.expected.value - self.changed - self.skipped) / self.per_second
