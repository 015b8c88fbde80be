"""The events of a worker, one frozen class each; `name` is the name in Graphile Worker for Node.

Events carry ids and values, never live pools or connections. They are emitted after the fact: completion and
failure of a job after the outcome was committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar, Literal

import msgspec

from ..values.job import Job, Pause
from ..values.outcome import Finished
from ..values.spec import CronJob, JobSpec

AddSource = Literal["client", "worker", "crontab"]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all events."""

    name: ClassVar[str] = ""


# -- the pool ----------------------------------------------------------------------------------------------


class PoolEvent(Event, frozen=True, kw_only=True):
    """An event of one pool."""

    pool_id: str


class PoolCreated(PoolEvent, frozen=True, kw_only=True):
    """A pool was created and is about to start."""

    name: ClassVar[str] = "pool:create"


class PoolListenConnecting(PoolEvent, frozen=True, kw_only=True):
    """The pool is about to open its connection for LISTEN; `attempts` counts consecutive failures so far."""

    name: ClassVar[str] = "pool:listen:connecting"
    attempts: int


class PoolListenSuccess(PoolEvent, frozen=True, kw_only=True):
    """The pool is listening for notifications."""

    name: ClassVar[str] = "pool:listen:success"


class PoolListenError(PoolEvent, frozen=True, kw_only=True):
    """The connection for LISTEN was lost or could not be opened; the pool reconnects."""

    name: ClassVar[str] = "pool:listen:error"
    error: BaseException


class PoolListenNotification(PoolEvent, frozen=True, kw_only=True):
    """A notification arrived."""

    name: ClassVar[str] = "pool:listen:notification"
    channel: str
    payload: str


class PoolListenEcho(PoolEvent, frozen=True, kw_only=True):
    """A notification arrived, so LISTEN works; the pool sends one itself after 30 seconds without any."""

    name: ClassVar[str] = "pool:listen:echo"


class PoolListenReleased(PoolEvent, frozen=True, kw_only=True):
    """The pool stopped listening because it is shutting down."""

    name: ClassVar[str] = "pool:listen:release"


class PoolFatalError(PoolEvent, frozen=True, kw_only=True):
    """A fatal error stops the pool; `action` says what it was doing."""

    name: ClassVar[str] = "pool:fatalError"
    error: BaseException
    action: str


class PoolGracefulShutdown(PoolEvent, frozen=True, kw_only=True):
    """Graceful shutdown: the pool takes no more jobs and waits for the running ones."""

    name: ClassVar[str] = "pool:gracefulShutdown"
    message: str


class PoolGracefulShutdownComplete(PoolEvent, frozen=True, kw_only=True):
    """All running jobs have ended and their outcomes are written."""

    name: ClassVar[str] = "pool:gracefulShutdown:complete"


class PoolGracefulShutdownError(PoolEvent, frozen=True, kw_only=True):
    """The shutdown failed; jobs may still be locked by this pool."""

    name: ClassVar[str] = "pool:gracefulShutdown:error"
    error: BaseException


class PoolGracefulShutdownWorkerError(PoolEvent, frozen=True, kw_only=True):
    """A job did not end within the grace and was returned to the queue."""

    name: ClassVar[str] = "pool:gracefulShutdown:workerError"
    error: BaseException
    job: Job


class PoolForcefulShutdown(PoolEvent, frozen=True, kw_only=True):
    """Forced shutdown: running jobs are cancelled."""

    name: ClassVar[str] = "pool:forcefulShutdown"
    message: str


class PoolForcefulShutdownComplete(PoolEvent, frozen=True, kw_only=True):
    """The forced shutdown is complete; every job of the pool was returned to the queue or failed."""

    name: ClassVar[str] = "pool:forcefulShutdown:complete"


class PoolForcefulShutdownError(PoolEvent, frozen=True, kw_only=True):
    """The forced shutdown failed; jobs may still be locked by this pool."""

    name: ClassVar[str] = "pool:forcefulShutdown:error"
    error: BaseException


class PoolJobsFetched(PoolEvent, frozen=True, kw_only=True):
    """A fetch found `count` jobs of at most `limit`; `seconds` is the time that the database took."""

    name: ClassVar[str] = "pool:fetch"
    count: int
    limit: int
    seconds: float
    kind: str
    """What ended it: held, announced, plain (all of them fast paths), whole, wide, fair or urgent."""


class PoolJobsReturned(PoolEvent, frozen=True, kw_only=True):
    """Prefetched jobs were returned to the queue without being run (no local queue)."""

    name: ClassVar[str] = "pool:returnJobs"
    jobs: Sequence[Job]


class PoolPaused(PoolEvent, frozen=True, kw_only=True):
    """The pool learnt that a task, a queue or everything is paused, or that the terms have changed."""

    name: ClassVar[str] = "pool:pause"
    pause: Pause


class PoolResumed(PoolEvent, frozen=True, kw_only=True):
    """The pool learnt that this pause is over."""

    name: ClassVar[str] = "pool:resume"
    pause: Pause


class PoolOutcomesWritten(PoolEvent, frozen=True, kw_only=True):
    """One statement wrote the outcomes of this many jobs; `returned` ones were not run to their end."""

    name: ClassVar[str] = "pool:write"
    completed: int
    failed: int
    returned: int
    seconds: float
    finished: Sequence[Finished] = ()
    """The completed and failed ones, with their outcomes. One event for many jobs is cheap to observe."""


class PoolReleased(PoolEvent, frozen=True, kw_only=True):
    """The pool has ended."""

    name: ClassVar[str] = "pool:release"


# -- the local queue ---------------------------------------------------------------------------------------


class LocalQueueEvent(PoolEvent, frozen=True, kw_only=True):
    """An event of a pool's local queue, which holds jobs locked ahead of its slots."""


class LocalQueueInit(LocalQueueEvent, frozen=True, kw_only=True):
    """The local queue was created."""

    name: ClassVar[str] = "localQueue:init"


class LocalQueueSetMode(LocalQueueEvent, frozen=True, kw_only=True):
    """The local queue changed its mode."""

    name: ClassVar[str] = "localQueue:setMode"
    old_mode: str
    new_mode: str


class LocalQueueGetJobsComplete(LocalQueueEvent, frozen=True, kw_only=True):
    """A fetch returned these jobs."""

    name: ClassVar[str] = "localQueue:getJobs:complete"
    jobs: Sequence[Job]


class LocalQueueReturnJobs(LocalQueueEvent, frozen=True, kw_only=True):
    """Prefetched jobs were returned to the queue without being run."""

    name: ClassVar[str] = "localQueue:returnJobs"
    jobs: Sequence[Job]


class LocalQueueRefetchDelayStart(LocalQueueEvent, frozen=True, kw_only=True):
    """The local queue delays its next fetch because the last one found few jobs."""

    name: ClassVar[str] = "localQueue:refetchDelay:start"
    job_count: int
    threshold: int
    delay: float
    abort_threshold: float


class LocalQueueRefetchDelayAbort(LocalQueueEvent, frozen=True, kw_only=True):
    """Enough jobs were announced to end the delay early."""

    name: ClassVar[str] = "localQueue:refetchDelay:abort"
    count: int
    abort_threshold: float


class LocalQueueRefetchDelayExpired(LocalQueueEvent, frozen=True, kw_only=True):
    """The delay is over."""

    name: ClassVar[str] = "localQueue:refetchDelay:expired"


# -- slots -------------------------------------------------------------------------------------------------


class WorkerEvent(Event, frozen=True, kw_only=True):
    """An event of one slot; `worker_id` is its id, since Node calls a slot a worker."""

    worker_id: str


class WorkerCreated(WorkerEvent, frozen=True, kw_only=True):
    """A slot was created; `tasks` are the identifiers of the tasks it can run."""

    name: ClassVar[str] = "worker:create"
    tasks: Sequence[str]


class WorkerReleased(WorkerEvent, frozen=True, kw_only=True):
    """The slot will end after its job."""

    name: ClassVar[str] = "worker:release"


class WorkerStopped(WorkerEvent, frozen=True, kw_only=True):
    """The slot has ended."""

    name: ClassVar[str] = "worker:stop"
    error: BaseException | None = None


class WorkerGetJobStart(WorkerEvent, frozen=True, kw_only=True):
    """The slot requests a job."""

    name: ClassVar[str] = "worker:getJob:start"


class WorkerGetJobError(PoolEvent, frozen=True, kw_only=True):
    """A fetch failed. The pool fetches for all of its slots, so there is no `worker_id`."""

    name: ClassVar[str] = "worker:getJob:error"
    error: BaseException


class WorkerGetJobEmpty(WorkerEvent, frozen=True, kw_only=True):
    """There is no job for the slot at the moment."""

    name: ClassVar[str] = "worker:getJob:empty"


class WorkerFatalError(WorkerEvent, frozen=True, kw_only=True):
    """An error outside of a task ended the slot."""

    name: ClassVar[str] = "worker:fatalError"
    error: BaseException


# -- jobs --------------------------------------------------------------------------------------------------


class JobEvent(Event, frozen=True, kw_only=True):
    """An event of one job in one slot."""

    worker_id: str
    job: Job


class JobStarted(JobEvent, frozen=True, kw_only=True):
    """The task is about to be called."""

    name: ClassVar[str] = "job:start"


class JobSucceeded(JobEvent, frozen=True, kw_only=True):
    """The task succeeded and its job was deleted; `duration` is the run time in seconds."""

    name: ClassVar[str] = "job:success"
    duration: float


class JobErrored(JobEvent, frozen=True, kw_only=True):
    """The task failed and that is written; the job is retried unless `JobFailed` follows."""

    name: ClassVar[str] = "job:error"
    error: BaseException
    duration: float
    will_retry: bool = True
    """Whether the job is retried; if not, `JobFailed` follows."""
    retry_in: float | None = None
    """Seconds until the next attempt; None if there is none."""
    batch_job_errors: Sequence[BaseException] | None = None
    traceback: str = ""
    """The formatted traceback, of bounded size; `error` has none, since frames keep local variables alive."""


class JobFailed(JobEvent, frozen=True, kw_only=True):
    """The job failed permanently; its row stays."""

    name: ClassVar[str] = "job:failed"
    error: BaseException
    duration: float
    is_cut_off: bool = False
    """Whether attempts were left, but the job was cancelled, or its key removed or reused, while it ran."""
    given_up: str | None = None
    """Why the job was given up although attempts were left; None if it was not."""
    batch_job_errors: Sequence[BaseException] | None = None
    traceback: str = ""
    """The formatted traceback, of bounded size; `error` has none, since frames keep local variables alive."""


class JobCompleted(JobEvent, frozen=True, kw_only=True):
    """The attempt is over, successful or not, and that is written; `error` is None after success."""

    name: ClassVar[str] = "job:complete"
    error: BaseException | None


class JobSnoozed(JobEvent, frozen=True, kw_only=True):
    """The task asked to run the job again later, and that is written; the attempt does not count."""

    name: ClassVar[str] = "job:snoozed"
    duration: float
    run_in: float
    """Seconds until the job is due again."""
    reason: str | None = None


class JobExpired(JobEvent, frozen=True, kw_only=True):
    """The job was due too long ago, so it was deleted and its task not called."""

    name: ClassVar[str] = "job:expired"
    waited: float
    """Seconds between the time when it could run and the time when a worker took it."""
    allowed: float
    """Seconds that the task allows with `expires`."""


class JobCancelled(JobEvent, frozen=True, kw_only=True):
    """The job was cancelled before its task completed, and was deleted."""

    name: ClassVar[str] = "job:cancelled"
    duration: float
    reason: str | None = None
    has_started: bool = True
    """Whether the task was called."""
    error: BaseException | None = None
    """The error with which the task ended, if it was not just the cancellation."""


class JobInterrupted(JobEvent, frozen=True, kw_only=True):
    """The worker stopped before the task ended; the job was returned without losing an attempt."""

    name: ClassVar[str] = "job:interrupted"
    error: BaseException


class JobOutcomeDiscarded(JobEvent, frozen=True, kw_only=True):
    """The task ended, but its outcome was not written; no other event of an outcome follows."""

    name: ClassVar[str] = "job:discarded"
    error: BaseException | None
    """The error of the task; None if it succeeded."""
    duration: float
    is_snoozed: bool = False
    """Whether the task asked to run the job again later."""
    reason: str
    """Why: the row was gone, another worker had taken over the job, or the database refused every outcome."""


class JobsAdded(Event, frozen=True, kw_only=True):
    """Jobs were added through this client or worker; in a transaction of the caller, not yet committed."""

    name: ClassVar[str] = "jobs:add"
    specs: Sequence[JobSpec]
    jobs: Sequence[Job]
    """In the order of the specs; empty with `return_jobs=False`, and for recurring jobs."""
    source: AddSource
    """Where they come from: a client, a worker (its tasks and `Runner.add_job`), or the crontab."""


# -- recurring jobs ----------------------------------------------------------------------------------------


class CronBackfillItem(msgspec.Struct, frozen=True, kw_only=True):
    """A crontab item with a missed run, and what the database knows about the item."""

    identifier: str
    job: CronJob
    known_since: datetime
    last_execution: datetime | None


class CronEvent(Event, frozen=True, kw_only=True):
    """An event of the scheduler of recurring jobs."""


class CronStarting(CronEvent, frozen=True, kw_only=True):
    """The scheduler reads the known crontab items and checks for missed runs."""

    name: ClassVar[str] = "cron:starting"
    start: datetime
    items: Sequence[Any] = ()
    """The recurring jobs of this worker, as `ParsedCronItem` objects."""


class CronStarted(CronEvent, frozen=True, kw_only=True):
    """The scheduler has caught up and now runs every minute."""

    name: ClassVar[str] = "cron:started"
    start: datetime


class CronBackfill(CronEvent, frozen=True, kw_only=True):
    """Missed runs of one minute are about to be added."""

    name: ClassVar[str] = "cron:backfill"
    items_to_backfill: Sequence[CronBackfillItem]
    timestamp: datetime


class CronPrematureTimer(CronEvent, frozen=True, kw_only=True):
    """The timer fired before its minute, because the clock moved back; it is set again."""

    name: ClassVar[str] = "cron:prematureTimer"
    current_timestamp: datetime
    expected_timestamp: datetime


class CronOverdueTimer(CronEvent, frozen=True, kw_only=True):
    """The timer fired minutes late, after a suspend or a clock jump; the scheduler catches up."""

    name: ClassVar[str] = "cron:overdueTimer"
    current_timestamp: datetime
    expected_timestamp: datetime


class CronSchedule(CronEvent, frozen=True, kw_only=True):
    """The jobs of one minute are about to be added."""

    name: ClassVar[str] = "cron:schedule"
    timestamp: datetime
    jobs_and_identifiers: Sequence[CronJob]


class CronScheduled(CronEvent, frozen=True, kw_only=True):
    """The jobs of one minute were added, by this worker or another."""

    name: ClassVar[str] = "cron:scheduled"
    timestamp: datetime
    jobs_and_identifiers: Sequence[CronJob]


# -- upkeep and shutdown -----------------------------------------------------------------------------------


class ResetLockedStarted(PoolEvent, frozen=True, kw_only=True):
    """Stale locks are about to be cleared."""

    name: ClassVar[str] = "resetLocked:started"


class ResetLockedSuccess(PoolEvent, frozen=True, kw_only=True):
    """Stale locks were cleared; `delay` is the time in seconds until the next run, None if there is none."""

    name: ClassVar[str] = "resetLocked:success"
    delay: float | None


class ResetLockedFailure(PoolEvent, frozen=True, kw_only=True):
    """Clearing stale locks failed; the next attempt is in `delay` seconds."""

    name: ClassVar[str] = "resetLocked:failure"
    error: BaseException
    delay: float | None


class GracefulShutdown(Event, frozen=True, kw_only=True):
    """The process received a first signal and shuts down gracefully."""

    name: ClassVar[str] = "gracefulShutdown"
    signal: str


class ForcefulShutdown(Event, frozen=True, kw_only=True):
    """The process received a second signal; the shutdown is forced."""

    name: ClassVar[str] = "forcefulShutdown"
    signal: str


class Stopped(Event, frozen=True, kw_only=True):
    """The runner begins to stop: on request, or because its pool ended."""

    name: ClassVar[str] = "stop"


# -- recovery ----------------------------------------------------------------------------------------------


class RecoveryEvent(Event, frozen=True, kw_only=True):
    """An event about a dead worker; `pool_id` is the pool that noticed, None for a command or a client."""

    pool_id: str | None


class WorkerLost(RecoveryEvent, frozen=True, kw_only=True):
    """A worker missed its heartbeats; its jobs are recovered in `dead_in` seconds unless it returns."""

    name: ClassVar[str] = "recovery:lost"
    lost_pool_id: str
    dead_in: float


class JobRecovered(RecoveryEvent, frozen=True, kw_only=True):
    """An orphaned job was recovered; `is_returned` is true if it was returned to the queue."""

    name: ClassVar[str] = "recovery:job"
    job: Job
    is_returned: bool
    last_error: str
    is_cancelled: bool = False
    """Whether it was deleted: it was cancelled, or its key removed or used again, before its worker died."""


class WorkerRecovered(RecoveryEvent, frozen=True, kw_only=True):
    """The jobs of a dead worker were recovered: ids of those returned, failed, left locked, cancelled."""

    name: ClassVar[str] = "recovery:worker"
    dead_pool_id: str
    returned: Sequence[int]
    failed: Sequence[int]
    left: Sequence[int]
    cancelled: Sequence[int] = ()
    """Deleted: they were cancelled, or their key removed or used again, before their worker died."""


class PoolLoopBlocked(PoolEvent, frozen=True, kw_only=True):
    """The event loop runs again after a task, or other code, has blocked it for a second or more."""

    name: ClassVar[str] = "pool:loop:blocked"
    job: Job | None
    """The job that blocked it; None if it was not a task."""
    seconds: float
    stack: str
    """Where the code was when that was noticed."""


class PoolEvicted(PoolEvent, frozen=True, kw_only=True):
    """This pool missed its heartbeats and other workers took over these jobs; it drops them."""

    name: ClassVar[str] = "pool:evicted"
    jobs: Sequence[Job]


def _concrete(base: type[Event]) -> list[type[Event]]:
    found = [base] if base.name and "name" in base.__dict__ else []
    for child in base.__subclasses__():
        found += _concrete(child)
    return found


EVENT_TYPES: dict[str, type[Event]] = {event.name: event for event in _concrete(Event)}
"""Every event class by its upstream name."""
