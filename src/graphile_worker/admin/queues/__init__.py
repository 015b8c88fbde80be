"""Named queues: how long, how old, busy with what, paused until when."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from ..answers import Count, Listing, Period

QueueState = Literal["paused", "busy", "stuck", "waiting", "idle"]


class QueuePause(msgspec.Struct, frozen=True, kw_only=True):
    """Until when a queue is paused, and why."""

    paused_at: datetime | None
    until: datetime | None
    reason: str | None


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """A named queue; a wide one with all its tracks."""

    name: str
    state: QueueState
    depth: Count
    """Waiting jobs."""
    ready: Count
    oldest: datetime | None
    """Since when the oldest ready job waits; of those counted."""
    locked_by: list[str] = []
    """The workers that have it locked; more than one only if it is wide."""
    locked_since: datetime | None = None
    concurrency: int = 1
    """How many of its jobs may run at once."""
    pause: QueuePause | None = None


class QueueJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that runs in a queue."""

    job_id: int
    task: str
    worker: str
    since: datetime


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


class QueueListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which queues."""

    q: str = ""
    """The beginning of their names."""
    after: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 20


class QueueQuery(msgspec.Struct, frozen=True):
    """Which queue."""

    name: str


class QueuePauseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A pause."""

    name: str
    until: datetime | None = None
    """None for no end."""
    period: Period | None = None
    """Seconds, instead of `until`."""
    reason: str = ""


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
