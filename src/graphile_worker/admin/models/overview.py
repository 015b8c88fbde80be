"""What Overview shows, and the sample that every stream gets."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from .common import Count

Level = Literal["ok", "warn", "bad"]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the queue at one moment, as the sampler found it."""

    at: datetime
    ready: Count
    scheduled: Count
    failed: Count
    """Permanently failed jobs."""
    running: Count
    """Jobs that workers of all runtimes have started, as far as it is known."""
    oldest_wait: float
    """Seconds since the oldest ready job could run."""
    workers: int | None = None
    """Python pools that are alive; None if their table is missing."""
    unreachable: int = 0
    """Python pools that miss their heartbeats."""
    slots: int | None = None
    added_per_minute: float | None = None
    """By all runtimes; None until two samples are far enough apart."""
    deleted_per_minute: float | None = None
    """Jobs that completed or were removed, by all runtimes."""
    failed_per_minute: float | None = None
    """Failed attempts, worked out from the server's counters."""
    counters: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Of the server for the jobs table: added, deleted, updated, live."""
