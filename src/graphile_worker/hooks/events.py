"""What happens in a worker, one frozen class per event; `name` is what Graphile Worker for Node calls it.

Events carry ids and values, never live pools or connections. They are emitted after the fact: those that
say a job was completed or failed come after the outcome was committed to the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar, Literal

import msgspec

from ..job import Job
from ..spec import CronJob, JobSpec

AddSource = Literal["client", "worker", "crontab"]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all events."""

    name: ClassVar[str] = ""


# -- the pool ----------------------------------------------------------------------------------------------


class PoolEvent(Event, frozen=True, kw_only=True):
    """Something about one worker pool."""

    pool_id: str


class PoolCreated(PoolEvent, frozen=True, kw_only=True):
    """A worker pool exists and is about to start."""

    name: ClassVar[str] = "pool:create"


class PoolListenConnecting(PoolEvent, frozen=True, kw_only=True):
    """The pool is about to connect for LISTEN; `attempts` counts the failures in a row before."""

    name: ClassVar[str] = "pool:listen:connecting"
    attempts: int


class PoolListenSuccess(PoolEvent, frozen=True, kw_only=True):
    """The pool hears notifications."""

    name: ClassVar[str] = "pool:listen:success"


class PoolListenError(PoolEvent, frozen=True, kw_only=True):
    """The connection for LISTEN was lost or could not be made; the pool tries again."""

    name: ClassVar[str] = "pool:listen:error"
    error: BaseException


class PoolListenNotification(PoolEvent, frozen=True, kw_only=True):
    """A notification arrived."""

    name: ClassVar[str] = "pool:listen:notification"
    channel: str
    payload: str


class PoolListenEcho(PoolEvent, frozen=True, kw_only=True):
    """A notification arrived, so LISTEN works; one is sent if there was none for 30 seconds."""

    name: ClassVar[str] = "pool:listen:echo"


class PoolListenReleased(PoolEvent, frozen=True, kw_only=True):
    """The pool stopped listening because it shuts down."""

    name: ClassVar[str] = "pool:listen:release"


class PoolFatalError(PoolEvent, frozen=True, kw_only=True):
    """The pool cannot go on; `action` says what it was doing."""

    name: ClassVar[str] = "pool:fatalError"
    error: BaseException
    action: str


class PoolGracefulShutdown(PoolEvent, frozen=True, kw_only=True):
    """The pool takes no more jobs and waits for the running ones."""

    name: ClassVar[str] = "pool:gracefulShutdown"
    message: str


class PoolGracefulShutdownComplete(PoolEvent, frozen=True, kw_only=True):
    """Everything that ran has ended and is written."""

    name: ClassVar[str] = "pool:gracefulShutdown:complete"


class PoolGracefulShutdownError(PoolEvent, frozen=True, kw_only=True):
    """The shutdown failed; jobs may still be locked by this pool."""

    name: ClassVar[str] = "pool:gracefulShutdown:error"
    error: BaseException


class PoolGracefulShutdownWorkerError(PoolEvent, frozen=True, kw_only=True):
    """One job did not end in time and was given back."""

    name: ClassVar[str] = "pool:gracefulShutdown:workerError"
    error: BaseException
    job: Job


class PoolForcefulShutdown(PoolEvent, frozen=True, kw_only=True):
    """Running tasks are cancelled now."""

    name: ClassVar[str] = "pool:forcefulShutdown"
    message: str


class PoolForcefulShutdownComplete(PoolEvent, frozen=True, kw_only=True):
    """The pool ended by force; every job it held was given back or failed."""

    name: ClassVar[str] = "pool:forcefulShutdown:complete"


class PoolForcefulShutdownError(PoolEvent, frozen=True, kw_only=True):
    """Ending by force failed; jobs may still be locked by this pool."""

    name: ClassVar[str] = "pool:forcefulShutdown:error"
    error: BaseException


class PoolJobsReturned(PoolEvent, frozen=True, kw_only=True):
    """Jobs that were fetched ahead and not started went back to the database; without a local queue."""

    name: ClassVar[str] = "pool:returnJobs"
    jobs: Sequence[Job]


class PoolReleased(PoolEvent, frozen=True, kw_only=True):
    """The pool is gone."""

    name: ClassVar[str] = "pool:release"


# -- the local queue ---------------------------------------------------------------------------------------


class LocalQueueEvent(PoolEvent, frozen=True, kw_only=True):
    """Something about the local queue of a pool: jobs that it holds locked ahead of its slots."""


class LocalQueueInit(LocalQueueEvent, frozen=True, kw_only=True):
    """The local queue exists."""

    name: ClassVar[str] = "localQueue:init"


class LocalQueueSetMode(LocalQueueEvent, frozen=True, kw_only=True):
    """The local queue went from one mode to another."""

    name: ClassVar[str] = "localQueue:setMode"
    old_mode: str
    new_mode: str


class LocalQueueGetJobsComplete(LocalQueueEvent, frozen=True, kw_only=True):
    """A fetch came back with these jobs."""

    name: ClassVar[str] = "localQueue:getJobs:complete"
    jobs: Sequence[Job]


class LocalQueueReturnJobs(LocalQueueEvent, frozen=True, kw_only=True):
    """Jobs that nobody started went back to the database."""

    name: ClassVar[str] = "localQueue:returnJobs"
    jobs: Sequence[Job]


class LocalQueueRefetchDelayStart(LocalQueueEvent, frozen=True, kw_only=True):
    """The local queue rests because the last fetch found little."""

    name: ClassVar[str] = "localQueue:refetchDelay:start"
    job_count: int
    threshold: int
    delay: float
    abort_threshold: float


class LocalQueueRefetchDelayAbort(LocalQueueEvent, frozen=True, kw_only=True):
    """So many jobs were announced that the rest ended early."""

    name: ClassVar[str] = "localQueue:refetchDelay:abort"
    count: int
    abort_threshold: float


class LocalQueueRefetchDelayExpired(LocalQueueEvent, frozen=True, kw_only=True):
    """The rest is over."""

    name: ClassVar[str] = "localQueue:refetchDelay:expired"


# -- slots -------------------------------------------------------------------------------------------------


class WorkerEvent(Event, frozen=True, kw_only=True):
    """Something about one slot of a pool: a worker that runs one job at a time."""

    worker_id: str


class WorkerCreated(WorkerEvent, frozen=True, kw_only=True):
    """A slot exists; `tasks` are the identifiers it can run."""

    name: ClassVar[str] = "worker:create"
    tasks: Sequence[str]


class WorkerReleased(WorkerEvent, frozen=True, kw_only=True):
    """The slot was told to end after its job."""

    name: ClassVar[str] = "worker:release"


class WorkerStopped(WorkerEvent, frozen=True, kw_only=True):
    """The slot has ended."""

    name: ClassVar[str] = "worker:stop"
    error: BaseException | None = None


class WorkerGetJobStart(WorkerEvent, frozen=True, kw_only=True):
    """The slot asks for a job."""

    name: ClassVar[str] = "worker:getJob:start"


class WorkerGetJobError(PoolEvent, frozen=True, kw_only=True):
    """A fetch failed; it is the pool that fetches, for all of its slots."""

    name: ClassVar[str] = "worker:getJob:error"
    error: BaseException


class WorkerGetJobEmpty(WorkerEvent, frozen=True, kw_only=True):
    """There is no job for the slot now."""

    name: ClassVar[str] = "worker:getJob:empty"


class WorkerFatalError(WorkerEvent, frozen=True, kw_only=True):
    """An error outside the task ended the slot."""

    name: ClassVar[str] = "worker:fatalError"
    error: BaseException


# -- jobs --------------------------------------------------------------------------------------------------


class JobEvent(Event, frozen=True, kw_only=True):
    """Something about one job in one slot."""

    worker_id: str
    job: Job


class JobStarted(JobEvent, frozen=True, kw_only=True):
    """The task is about to be called."""

    name: ClassVar[str] = "job:start"


class JobSucceeded(JobEvent, frozen=True, kw_only=True):
    """The task ended well and the job is gone from the database; `duration` is the task's run time."""

    name: ClassVar[str] = "job:success"
    duration: float


class JobErrored(JobEvent, frozen=True, kw_only=True):
    """The task failed and the failure is written; the job is retried unless `JobFailed` follows."""

    name: ClassVar[str] = "job:error"
    error: BaseException
    duration: float
    will_retry: bool = True
    """Whether the job is tried again; if not, `JobFailed` follows."""
    batch_job_errors: Sequence[BaseException] | None = None
    traceback: str = ""
    """The formatted traceback, of bounded size; the error itself has none, since frames keep locals alive."""


class JobFailed(JobEvent, frozen=True, kw_only=True):
    """The task failed and the job is not tried again; its row stays."""

    name: ClassVar[str] = "job:failed"
    error: BaseException
    duration: float
    is_cut_off: bool = False
    """Whether attempts were left, but its key was removed or used again while the task ran."""
    batch_job_errors: Sequence[BaseException] | None = None
    traceback: str = ""
    """The formatted traceback, of bounded size; the error itself has none, since frames keep locals alive."""


class JobCompleted(JobEvent, frozen=True, kw_only=True):
    """The job is done with, well or not, and that is written; `error` is None after success."""

    name: ClassVar[str] = "job:complete"
    error: BaseException | None


class JobInterrupted(JobEvent, frozen=True, kw_only=True):
    """The worker stopped before the task ended; the job went back without losing an attempt."""

    name: ClassVar[str] = "job:interrupted"
    error: BaseException


class JobOutcomeDiscarded(JobEvent, frozen=True, kw_only=True):
    """The task ended, but its outcome was not written; none of the other events of an outcome follows."""

    name: ClassVar[str] = "job:discarded"
    error: BaseException | None
    """The error of the task; None if it succeeded."""
    duration: float
    reason: str
    """Why: the row was gone, another worker holds the job, or the database refused every outcome."""


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
    """One item that is due in the past, with what the database knows of it."""

    identifier: str
    job: CronJob
    known_since: datetime
    last_execution: datetime | None


class CronEvent(Event, frozen=True, kw_only=True):
    """Something about the scheduler of recurring jobs."""


class CronStarting(CronEvent, frozen=True, kw_only=True):
    """The scheduler reads what is known and looks for runs it missed."""

    name: ClassVar[str] = "cron:starting"
    start: datetime


class CronStarted(CronEvent, frozen=True, kw_only=True):
    """The scheduler has caught up and now ticks every minute."""

    name: ClassVar[str] = "cron:started"
    start: datetime


class CronBackfill(CronEvent, frozen=True, kw_only=True):
    """Missed runs of one minute are about to be added."""

    name: ClassVar[str] = "cron:backfill"
    items_to_backfill: Sequence[CronBackfillItem]
    timestamp: datetime


class CronPrematureTimer(CronEvent, frozen=True, kw_only=True):
    """The timer rang before its minute, because the clock went back; it is set again."""

    name: ClassVar[str] = "cron:prematureTimer"
    current_timestamp: datetime
    expected_timestamp: datetime


class CronOverdueTimer(CronEvent, frozen=True, kw_only=True):
    """The timer rang minutes late, after a sleep or a clock jump; the minutes between are caught up."""

    name: ClassVar[str] = "cron:overdueTimer"
    current_timestamp: datetime
    expected_timestamp: datetime


class CronSchedule(CronEvent, frozen=True, kw_only=True):
    """The jobs of one minute are about to be added."""

    name: ClassVar[str] = "cron:schedule"
    timestamp: datetime
    jobs_and_identifiers: Sequence[CronJob]


class CronScheduled(CronEvent, frozen=True, kw_only=True):
    """The jobs of one minute are added, by this worker or by another one."""

    name: ClassVar[str] = "cron:scheduled"
    timestamp: datetime
    jobs_and_identifiers: Sequence[CronJob]


# -- upkeep and the end ------------------------------------------------------------------------------------


class ResetLockedStarted(PoolEvent, frozen=True, kw_only=True):
    """Locks older than four hours are about to be cleared."""

    name: ClassVar[str] = "resetLocked:started"


class ResetLockedSuccess(PoolEvent, frozen=True, kw_only=True):
    """They were cleared; `delay` is the time to the next run, None if there is none."""

    name: ClassVar[str] = "resetLocked:success"
    delay: float | None


class ResetLockedFailure(PoolEvent, frozen=True, kw_only=True):
    """Clearing them failed; it is tried again after `delay`."""

    name: ClassVar[str] = "resetLocked:failure"
    error: BaseException
    delay: float | None


class GracefulShutdown(Event, frozen=True, kw_only=True):
    """The process got a first signal and stops gracefully."""

    name: ClassVar[str] = "gracefulShutdown"
    signal: str


class ForcefulShutdown(Event, frozen=True, kw_only=True):
    """The process got a second signal and stops now."""

    name: ClassVar[str] = "forcefulShutdown"
    signal: str


class Stopped(Event, frozen=True, kw_only=True):
    """The runner was told to stop, or stops because its pool ended."""

    name: ClassVar[str] = "stop"


# -- recovery ----------------------------------------------------------------------------------------------


class RecoveryEvent(Event, frozen=True, kw_only=True):
    """Something about a worker that died; `pool_id` is the worker that noticed it, None for a person."""

    pool_id: str | None


class WorkerLost(RecoveryEvent, frozen=True, kw_only=True):
    """A worker is out of reach; its jobs are taken from it in `dead_in` seconds unless it is back by then."""

    name: ClassVar[str] = "recovery:lost"
    lost_pool_id: str
    dead_in: float


class JobRecovered(RecoveryEvent, frozen=True, kw_only=True):
    """A job was taken from a dead worker; `is_returned` tells whether it will run again at once."""

    name: ClassVar[str] = "recovery:job"
    job: Job
    is_returned: bool
    last_error: str


class WorkerRecovered(RecoveryEvent, frozen=True, kw_only=True):
    """A dead worker was dealt with; ids of the jobs that were given to others, failed, or left locked."""

    name: ClassVar[str] = "recovery:worker"
    dead_pool_id: str
    returned: Sequence[int]
    failed: Sequence[int]
    left: Sequence[int]


class PoolEvicted(PoolEvent, frozen=True, kw_only=True):
    """This worker was out of reach for so long that these jobs were taken from it; they are dropped."""

    name: ClassVar[str] = "pool:evicted"
    jobs: Sequence[Job]


def _concrete(base: type[Event]) -> list[type[Event]]:
    found = [base] if base.name and "name" in base.__dict__ else []
    for child in base.__subclasses__():
        found += _concrete(child)
    return found


EVENT_TYPES: dict[str, type[Event]] = {event.name: event for event in _concrete(Event)}
"""Every event class by its upstream name."""
