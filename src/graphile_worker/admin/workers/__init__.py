"""Workers: what each runs, and what operators ask of them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from ...recovery.registry.load import Load
from ...recovery.registry.pool_state import ExecutorPlace
from ...recovery.registry.workers import Runtime
from ...values.concurrency import MAIN, MOST_ASKED_SLOTS
from ...values.flags import FlagDescription
from ...values.text import duration

WorkerState = Literal["alive", "paused", "stopping", "late", "dead", "unknown"]


class BusySlot(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a worker runs."""

    id: int
    started_at: datetime
    task_identifier: str | None = None
    """None if it was not looked up, or the job has ended since."""
    seconds: float


class WorkerLane(msgspec.Struct, frozen=True, kw_only=True):
    """One lane of a worker, with what runs in it."""

    name: str
    slots: int
    tasks: list[str]
    running: list[BusySlot]


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """What blocks the event loop of a worker."""

    task_identifier: str | None
    job_id: int | None
    since: datetime
    seconds: float
    culprit: str
    """In words."""


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker pool: what `worker_as_json` has, and what follows from it.

    Of other runtimes no more is known than their heartbeats and the jobs they have locked.
    """

    id: str
    runtime: Runtime
    state: WorkerState
    detail: str
    """The state in words: `dead in 12 s`, `no heartbeat for 20 s`."""
    host: str | None = None
    pid: int | None = None
    version: str | None = None
    """Of this package."""
    app_version: str | None = None
    started_at: datetime | None = None
    last_seen_at: datetime | None = None
    tasks: list[str] | None = None
    concurrency: int | None = None
    """Its slots."""
    liveness: Literal["lock", "heartbeat"] | None = None
    is_alive: bool | None = None
    dead_in: float | None = None
    silent_for: float | None = None
    stalled_for: float | None = None
    busy: int | None = None
    prefetched: int | None = None
    running: list[BusySlot] | None = None
    """The longest-running first."""
    job_ids: list[int] = []
    lanes: list[WorkerLane] | None = None
    flag_rules: FlagDescription | None = None
    """Which jobs it takes by their flags; None if it does not say."""
    per_minute: float | None = None
    """Attempts that ended, in the last minutes; None without statistics."""
    failed_per_minute: float | None = None
    is_listening: bool | None = None
    """False if it finds jobs by polling; None if it does not say."""
    clock: float | None = None
    """Seconds that its clock is ahead of the server's."""
    executors: list[ExecutorPlace] | None = None
    """Processes and machines that run tasks for it."""
    load: Load | None = None
    """Memory and processor time of its process, as of its last heartbeat; None if it does not say."""
    blocked: Blocked | None = None
    asked: str | None = None
    """Why it was asked to stop or was paused."""
    jobs_held: int | None = None
    locked_since: datetime | None = None

    @property
    def name(self) -> str:
        """Host and process, or the id."""
        return self.id if self.host is None else f"{self.host} · {self.pid}"

    @property
    def memory(self) -> str:
        """The memory of its process, in words."""
        return megabytes(None if self.load is None else self.load.memory)

    @property
    def processor(self) -> str:
        """The share of a processor that it uses, in words."""
        return "unknown" if self.load is None or self.load.cpu is None else f"{self.load.cpu:.0%}"

    @property
    def cells(self) -> list[tuple[str, str]]:
        """The slots for `ui.slots`: busy ones first, the longest-running in another colour."""
        shown = [
            (
                "long" if slot.seconds >= LONG else "on",
                f"{slot.task_identifier or 'job'} {slot.id}, {duration(slot.seconds)}",
            )
            for slot in self.running or ()
        ]
        free = max(0, (self.concurrency or 0) - len(shown))
        return shown + [("", "free")] * free


def megabytes(memory: int | None) -> str:
    """Bytes, in words."""
    return "unknown" if memory is None else f"{memory / 1e6:,.0f} MB"


LONG = 60.0
"""Seconds after which a running job is marked."""


class VersionGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Workers of one version of the application and of the package."""

    app_version: str | None
    version: str | None
    workers: int
    slots: int
    since: datetime | None


class WorkerListing(msgspec.Struct, frozen=True, kw_only=True):
    """All workers."""

    items: list[Worker]
    versions: list[VersionGroup]
    is_complete: bool
    """Whether workers of other runtimes are included: the jobs table was small enough to look."""
    missing: str | None = None
    """What is not known here, and why."""

    @property
    def alive(self) -> int:
        return sum(worker.state not in ("dead", "unknown") for worker in self.items)


WorkerOrder = Literal[
    "usual", "name", "slots", "busy", "memory", "processor", "rate", "failing", "since"
]  # fmt: skip


class WorkersQuery(msgspec.Struct, frozen=True):
    """In which order."""

    order: WorkerOrder = "usual"
    """The largest value first, or the latest start. `usual`: those of this package, then others."""


class WorkerQuery(msgspec.Struct, frozen=True):
    """Which worker."""

    id: str


class WorkerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to one worker."""

    id: str
    reason: str = ""
    typed: str = ""
    """To free the locks of a worker that may be alive: its id once more."""


class WorkerLaneQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which lane of a worker."""

    id: str
    lane: str = MAIN


class WorkerConcurrencyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs a worker is to run at once, in one of its lanes."""

    id: str
    lane: str = MAIN
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=MOST_ASKED_SLOTS)]


class WorkerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of a worker."""

    id: str
    done: str
    """In words."""
