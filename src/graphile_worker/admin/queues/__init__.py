"""Named queues: how long, how old, busy with what, paused until when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from ...values.job import Pause
from ..answers import Count, CountKind, Listing, PauseRequest, Points, RangeName

QueueState = Literal["paused", "busy", "stuck", "waiting", "idle"]


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """A named queue; a wide one with all its tracks.

    Its members are those of `queue_as_json`, but for `jobs`: all jobs of a long queue cannot be counted soon.
    """

    queue_name: str
    concurrency: int = 1
    """How many of its jobs may run at once."""
    locked_by: str | None = None
    """The worker that has it locked; of several, the one that locked it first."""
    locked_at: datetime | None = None
    waiting: int
    """Ready and scheduled jobs."""
    ready: int
    is_estimate: bool = False
    """Whether `waiting` and `ready` are not exact."""
    pause: Pause | None = None
    state: QueueState
    kind: CountKind = "exact"
    """Of `waiting` and `ready`: exact, an estimate, or how many were counted at least."""
    oldest: datetime | None = None
    """Since when the oldest ready job waits; of those counted."""
    holders: list[str] = []
    """All workers that have it locked; more than one only if it is wide."""

    @property
    def waiting_jobs(self) -> Count:
        return Count(self.waiting, self.kind)

    @property
    def ready_jobs(self) -> Count:
        return Count(self.ready, self.kind)


class QueueJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that runs in a queue."""

    id: int
    task_identifier: str
    locked_by: str
    locked_at: datetime


class QueueDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, and what runs in it."""

    queue: QueueView
    running: list[QueueJob]
    """As far as its workers have told."""
    stuck: list[str]
    """Dead workers that have it locked."""


class QueueListing(Listing[QueueView], frozen=True, kw_only=True):
    """One page of queues."""

    what: Literal["busy", "search", "longest"]
    """Those with locks or waiting jobs; those whose names begin with a text; the longest, by a sample."""
    missing: str | None = None


QueueOrder = Literal["usual", "name", "waiting", "ready", "oldest", "locked", "concurrency"]


class QueueListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which queues."""

    q: str = ""
    """The beginning of their names."""
    after: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 20
    order: QueueOrder = "usual"
    """Sorts the queues of one page; which queues it has does not depend on it."""


class QueueQuery(msgspec.Struct, frozen=True):
    """Which queue."""

    name: str


class QueuePageQuery(QueueQuery, frozen=True):
    """Which queue, and what the chart of its page shows."""

    range: RangeName = "1h"


@dataclass(frozen=True, slots=True)
class FinishedSeries:
    """Kept jobs of a queue that finished in each step, per minute; None where nothing is known."""

    start: datetime
    completed: Points
    failed: Points
    read_since: datetime | None
    """The jobs that finished before were too many to read; None if all were read."""

    @property
    def has_completed(self) -> bool:
        return any(self.completed)

    @property
    def is_empty(self) -> bool:
        return not self.has_completed and not any(self.failed)


class QueuePauseRequest(PauseRequest, frozen=True, kw_only=True):
    """A pause."""

    name: str


class QueueUnlockRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Free a queue from a dead worker."""

    name: str
    typed: str = ""
    """If the worker may be alive: the name of the queue once more."""


class QueueConcurrencyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a queue may run at once."""

    name: str
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=999_999)] | None = None
    """None leaves it to its tasks."""


class QueueAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was done."""

    name: str
    done: str
    """In words."""
