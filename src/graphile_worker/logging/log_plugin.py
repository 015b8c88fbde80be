"""LogPlugin: turns events into log lines.

It observes only what the log levels let through when it is installed, so that a job costs nothing here when
its lines are off. A failed task is logged with its traceback. Faults outside of tasks, above all in the
database, have theirs at debug level only. `log_with_stack` shows the stack of another thread or coroutine in
place of the logging one's.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from ..errors import ConfigError
from ..errors.text import cause_of, context_of, summarize
from ..hooks import Hooks, events
from ..values.attempts import JobDirective, back_off
from ..values.job import Pause
from ..values.text import count, duration
from .alike_records import AlikeRecords
from .formatters import (
    error_fields,
    failure_fields,
    job_scope,
    milliseconds,
    minute,
    outcome_text,
    pool_scope,
    running_pools,
    worker_scope,
)
from .job_context import job_fields

OLD = timedelta(days=1)  # since the job was added; snoozing an older one is a warning
COMPLETED = "task %s (job %d) completed in %s"
MOST_NAMED = 10  # jobs in one line


def has_output(logger: logging.Logger, level: int) -> bool:
    """Whether a line of this level is enabled and has a handler other than a NullHandler."""
    if not logger.isEnabledFor(level):
        return False
    has_null_handler = False
    current: logging.Logger | None = logger
    while current is not None:
        for handler in current.handlers:
            if not isinstance(handler, logging.NullHandler):
                return True
            has_null_handler = True
        current = current.parent if current.propagate else None
    return not has_null_handler  # without any handler, Python prints warnings itself


class LogPlugin:
    """Logs to the logger `graphile_worker` and its children, or to your own logger.

    Lines about the pool go to the logger itself. Lines about jobs, about recurring jobs, and those that tasks
    write go to its children `worker`, `cron` and `job`. A failure that is retried is a warning, a permanent
    one an error.
    """

    def __init__(
        self, logger: logging.Logger | None = None, *, environ: Mapping[str, str] = os.environ
    ) -> None:
        if logger is not None and not isinstance(logger, logging.Logger):
            raise ConfigError(f"logger must be a logging.Logger, not {type(logger).__name__}")
        self._core = logging.getLogger("graphile_worker") if logger is None else logger
        self.job_logger = self._core.getChild("job")
        """Where `helpers.logger` writes."""
        self.cron_logger = self._core.getChild("cron")
        self._worker = self._core.getChild("worker")
        self._successes = AlikeRecords(self._worker, logging.INFO, __file__, COMPLETED, "_succeeded")
        self._log_success = not environ.get("NO_LOG_SUCCESS")

    def install(self, hooks: Hooks) -> None:
        """Observe the events whose lines are enabled."""
        on = hooks.events.on
        on(events.PoolCreated, lambda event: running_pools.add(event.pool_id))
        on(events.PoolReleased, lambda event: running_pools.remove(event.pool_id))
        if self._worker.isEnabledFor(logging.DEBUG):
            on(events.JobStarted, self._started)
            on(events.WorkerGetJobError, self._get_job_error)
            on(events.ResetLockedStarted, self._reset_started)
            on(events.LocalQueueSetMode, self._local_queue_mode)
        if self._worker.isEnabledFor(logging.INFO):
            if self._log_success:
                on(events.JobSucceeded, self._succeeded)
                on(events.PoolListenSuccess, self._listening)
            on(events.JobInterrupted, self._interrupted)
            on(events.PoolPaused, self._paused)
            on(events.PoolResumed, self._resumed)
            on(events.PoolGracefulShutdown, self._stopping)
            on(events.PoolGracefulShutdownComplete, self._stopped)
            on(events.GracefulShutdown, self._first_signal)
        if self.cron_logger.isEnabledFor(logging.INFO):
            on(events.CronStarted, self._cron_started)
            on(events.CronBackfill, self._cron_backfill)
            on(events.CronScheduled, self._cron_scheduled)
        on(events.JobErrored, self._errored)
        on(events.JobSnoozed, self._snoozed)
        on(events.JobExpired, self._expired)
        on(events.JobCancelled, self._cancelled)
        on(events.JobFailed, self._failed)
        on(events.JobOutcomeDiscarded, self._discarded)
        on(events.PoolListenError, self._listen_error)
        on(events.PoolFatalError, self._pool_fatal)
        on(events.WorkerFatalError, self._worker_fatal)
        on(events.PoolGracefulShutdownWorkerError, self._not_ended)
        on(events.PoolGracefulShutdownError, self._graceful_failed)
        on(events.PoolForcefulShutdown, self._forcing)
        on(events.PoolForcefulShutdownComplete, self._forced)
        on(events.PoolForcefulShutdownError, self._force_failed)
        on(events.ForcefulShutdown, self._second_signal)
        on(events.ResetLockedFailure, self._reset_failed)
        on(events.WorkerLost, self._worker_lost)
        on(events.WorkerRecovered, self._worker_recovered)
        on(events.PoolEvicted, self._evicted)
        on(events.CronPrematureTimer, self._cron_premature)
        on(events.CronOverdueTimer, self._cron_overdue)

    # -- called by the runner ----------------------------------------------------------------------------

    def ready(
        self,
        *,
        version: str,
        pool_id: str,
        tasks: Sequence[str],
        cron_items: int,
        concurrency: int,
        database: str,
        schema: str,
        lanes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Log that the worker is ready, with its tasks, its concurrency and its database."""
        if not self._core.isEnabledFor(logging.INFO):
            return
        shown = ", ".join(sorted(tasks)[:10]) + (", …" if len(tasks) > 10 else "")
        self._core.info(
            "ready: graphile-worker %s, %s%s, %s, %s at a time%s, database %s, schema %s",
            version,
            count(len(tasks), "task"),
            f" ({shown})" if tasks else "",
            count(cron_items, "recurring job"),
            count(concurrency, "job"),
            f" (lanes: {', '.join(f'{name} {slots}' for name, slots in lanes.items())})" if lanes else "",
            database,
            schema,
            extra={
                "event": "ready", "pool_id": pool_id, "tasks": sorted(tasks), "cron_items": cron_items,
                "concurrency": concurrency, "database": database, "schema": schema, "version": version,
                **({"lanes": dict(lanes)} if lanes else {}),
            },
        )  # fmt: skip

    def no_crontab(self, path: str, beside_tasks: str | None = None) -> None:
        """Log that there is no crontab file, and that one next to the tasks is not read."""
        if beside_tasks is None:
            self.cron_logger.debug(
                "no crontab at %s; there are no recurring jobs", path, extra={"path": path}
            )
            return
        self.cron_logger.warning(
            "no crontab at %s; there are no recurring jobs. %s is not read: use --crontab for that", path,
            beside_tasks, extra={"path": path},
        )  # fmt: skip

    def nothing_waits(self) -> None:
        """Log that a drain found no job."""
        self._core.info("no job is ready; nothing to do")

    # -- jobs --------------------------------------------------------------------------------------------

    def _started(self, event: events.JobStarted) -> None:
        job = event.job
        self._worker.debug(
            "task %s (job %d) started, attempt %d of %d", job.task_identifier, job.id, job.attempts,
            job.max_attempts, extra=job_scope(event),
        )  # fmt: skip

    def _succeeded(self, event: events.JobSucceeded) -> None:
        logger, job = self._worker, event.job
        if not logger.isEnabledFor(logging.INFO):
            return
        extra = job_scope(event)
        extra["duration_ms"] = milliseconds(event.duration)
        args = (job.task_identifier, job.id, duration(event.duration))
        logger.handle(self._successes.record(args, extra))

    def _errored(self, event: events.JobErrored) -> None:
        job = event.job
        if not event.will_retry or job.attempts >= job.max_attempts:
            return  # JobFailed follows
        if not has_output(self._worker, logging.WARNING):
            return  # formatting a line costs more than running a short job
        delay = back_off(job.attempts) if event.retry_in is None else event.retry_in
        self._log_failure(
            logging.WARNING, event,
            "task %s (job %d) failed after %s on attempt %d of %d: %s; retrying in %s",
            (duration(event.duration), job.attempts, job.max_attempts, outcome_text(event),
             duration(delay)),
            {"retry_in_s": round(delay, 3)},
        )  # fmt: skip

    def _failed(self, event: events.JobFailed) -> None:
        job = event.job
        if not has_output(self._worker, logging.ERROR):
            return
        why = ""
        if event.is_cut_off:
            why = " (it was cancelled, or its key was removed or reused, while it ran)"
        if event.given_up is not None:
            why = f" ({event.given_up})"
        self._log_failure(
            logging.ERROR, event,
            "task %s (job %d) permanently failed after %s on attempt %d of %d: %s; it will not be retried%s",
            (duration(event.duration), job.attempts, job.max_attempts, outcome_text(event), why),
        )  # fmt: skip

    def _log_failure(
        self,
        level: int,
        event: events.JobErrored | events.JobFailed,
        message: str,
        args: tuple[object, ...],
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Log with the traceback as `exc_text`, which every formatter prints below the line.

        The message begins with the task and the job; `args` are the others.

        Not as `exc_info`: the exception has lost its frames, so that they do not keep local variables alive.
        """
        logger = self._worker
        args = (event.job.task_identifier, event.job.id, *args)
        path, line, function, _ = logger.findCaller(stacklevel=2)
        extra = job_scope(event) | failure_fields(event) | dict(more)
        record = logger.makeRecord(logger.name, level, path, line, message, args, None, function, extra)
        is_decision = (
            isinstance(event.error, JobDirective)
            and (cause_of(event.error) or context_of(event.error)) is None
        )
        if "\n" in event.traceback and not is_decision:  # a single line would repeat the message
            record.exc_text = event.traceback
        logger.handle(record)

    def _snoozed(self, event: events.JobSnoozed) -> None:
        job = event.job
        age = (job.locked_at or job.created_at) - job.created_at
        is_old = age > OLD
        self._worker.log(
            logging.WARNING if is_old else logging.INFO,
            "task %s (job %d) was snoozed for %s after %s%s; the attempt does not count%s",
            job.task_identifier, job.id, duration(event.run_in), duration(event.duration),
            f": {event.reason}" if event.reason else "",
            f" (it was added {count(age.days, 'day')} ago; give_up_after sets a limit)" if is_old else "",
            extra=job_scope(event) | {"run_in_s": round(event.run_in, 3)},
        )  # fmt: skip

    def _expired(self, event: events.JobExpired) -> None:
        self._worker.warning(
            "task %s (job %d) expired: it waited %s, and at most %s is allowed; deleted without running",
            event.job.task_identifier, event.job.id, duration(event.waited), duration(event.allowed),
            extra=job_scope(event) | {"waited_s": round(event.waited, 3)},
        )  # fmt: skip

    def _cancelled(self, event: events.JobCancelled) -> None:
        ended = f"after {duration(event.duration)}" if event.has_started else "before it started"
        reason = f": {event.reason}" if event.reason else ""
        raised = f"; the task ended with {summarize(event.error)}" if event.error is not None else ""
        self._worker.info(
            "task %s (job %d) was cancelled %s%s; deleted%s",
            event.job.task_identifier, event.job.id, ended, reason, raised,
            extra=job_scope(event) | ({} if event.error is None else error_fields(event.error)),
        )  # fmt: skip

    def _interrupted(self, event: events.JobInterrupted) -> None:
        self._worker.info(
            "task %s (job %d) was interrupted: %s; returned to the queue without losing an attempt",
            event.job.task_identifier, event.job.id, summarize(event.error).removeprefix("Interrupted: "),
            extra=job_scope(event) | error_fields(event.error),
        )  # fmt: skip

    def _discarded(self, event: events.JobOutcomeDiscarded) -> None:
        ended = "succeeded" if event.error is None else f"failed: {summarize(event.error)}"
        if event.is_snoozed:
            ended = "was snoozed"
        self._worker.warning(
            "task %s (job %d) %s, but the outcome was not written: %s",
            event.job.task_identifier, event.job.id, ended, event.reason,
            extra=job_scope(event) | ({} if event.error is None else error_fields(event.error)),
        )  # fmt: skip

    def _get_job_error(self, event: events.WorkerGetJobError) -> None:
        self._worker.debug(
            "fetching jobs failed: %s", summarize(event.error),
            extra=pool_scope(event) | error_fields(event.error),
            exc_info=self._traceback(event.error),
        )  # fmt: skip

    def _worker_fatal(self, event: events.WorkerFatalError) -> None:
        self._worker.error(
            "slot stopped by an error: %s", summarize(event.error),
            extra=worker_scope(event) | error_fields(event.error),
            exc_info=event.error,
        )  # fmt: skip

    # -- recovery ----------------------------------------------------------------------------------------

    def _worker_lost(self, event: events.WorkerLost) -> None:
        self._core.warning(
            "worker pool %s missed its heartbeats; its jobs will be recovered in %s unless it returns",
            event.lost_pool_id, duration(event.dead_in),
            extra=pool_scope(event) | {"lost_pool_id": event.lost_pool_id},
        )  # fmt: skip

    def _worker_recovered(self, event: events.WorkerRecovered) -> None:
        failed = f", failed {count(len(event.failed), 'job')}" if event.failed else ""
        left = f", left {count(len(event.left), 'job')} locked" if event.left else ""
        cancelled = f", deleted {count(len(event.cancelled), 'cancelled job')}" if event.cancelled else ""
        self._core.warning(
            "worker pool %s is dead; returned %s to the queue%s%s%s%s",
            event.dead_pool_id, count(len(event.returned), "job"), failed, left, cancelled,
            _named([*event.returned, *event.failed, *event.left, *event.cancelled]),
            extra=pool_scope(event) | {
                "dead_pool_id": event.dead_pool_id,
                "returned": list(event.returned), "failed": list(event.failed), "left": list(event.left),
                "cancelled": list(event.cancelled),
            },
        )  # fmt: skip

    def _evicted(self, event: events.PoolEvicted) -> None:
        self._core.warning(
            "this worker missed its heartbeats; dropped %s that other workers took over",
            count(len(event.jobs), "job"),
            extra=pool_scope(event) | {"jobs": [job.id for job in event.jobs]},
        )  # fmt: skip

    # -- the pool ----------------------------------------------------------------------------------------

    def _listening(self, event: events.PoolListenSuccess) -> None:
        self._core.info("connected; listening for new jobs", extra=pool_scope(event))

    def _listen_error(self, event: events.PoolListenError) -> None:
        self._core.warning(
            "cannot listen for new jobs: %s; reconnecting, polling until then", summarize(event.error),
            extra=pool_scope(event) | error_fields(event.error), exc_info=self._traceback(event.error),
        )  # fmt: skip

    def _paused(self, event: events.PoolPaused) -> None:
        pause = event.pause
        self._core.info(
            "%s is paused%s; %s", pause.what, pause.terms, "its jobs wait" if pause.name else "jobs wait",
            extra=pool_scope(event) | _pause_fields(pause),
        )  # fmt: skip

    def _resumed(self, event: events.PoolResumed) -> None:
        self._core.info(
            "%s is no longer paused", event.pause.what, extra=pool_scope(event) | _pause_fields(event.pause)
        )

    def _pool_fatal(self, event: events.PoolFatalError) -> None:
        self._core.error(
            "the worker cannot continue (%s): %s; stopping", event.action, summarize(event.error),
            extra=pool_scope(event) | error_fields(event.error) | {"action": event.action},
            exc_info=self._traceback(event.error),
        )  # fmt: skip

    def _local_queue_mode(self, event: events.LocalQueueSetMode) -> None:
        self._core.debug("local queue: %s to %s", event.old_mode, event.new_mode, extra=pool_scope(event))

    def _reset_started(self, event: events.ResetLockedStarted) -> None:
        self._core.debug("clearing stale locks", extra=pool_scope(event))

    def _reset_failed(self, event: events.ResetLockedFailure) -> None:
        again = "" if event.delay is None else f"; retrying in {duration(event.delay)}"
        self._core.warning(
            "clearing stale locks failed: %s%s", summarize(event.error), again,
            extra=pool_scope(event) | error_fields(event.error), exc_info=self._traceback(event.error),
        )  # fmt: skip

    # -- stopping ----------------------------------------------------------------------------------------

    def _first_signal(self, event: events.GracefulShutdown) -> None:
        self._core.info(
            "got %s; waiting for running jobs to finish; send it again after 5 s to cancel them",
            event.signal, extra={"event": event.name, "signal": event.signal},
        )  # fmt: skip

    def _second_signal(self, event: events.ForcefulShutdown) -> None:
        self._core.warning(
            "got %s again; stopping now", event.signal, extra={"event": event.name, "signal": event.signal}
        )

    def _stopping(self, event: events.PoolGracefulShutdown) -> None:
        self._core.info("stopping: %s", event.message, extra=pool_scope(event))

    def _stopped(self, event: events.PoolGracefulShutdownComplete) -> None:
        self._core.info("stopped; all outcomes are written", extra=pool_scope(event))

    def _not_ended(self, event: events.PoolGracefulShutdownWorkerError) -> None:
        job = event.job
        self._core.warning(
            "task %s (job %d) did not end in time: %s", job.task_identifier, job.id, summarize(event.error),
            extra=pool_scope(event) | job_fields(job) | error_fields(event.error),
        )  # fmt: skip

    def _graceful_failed(self, event: events.PoolGracefulShutdownError) -> None:
        self._core.error(
            "could not stop cleanly: %s; jobs may still be locked by %s", summarize(event.error),
            event.pool_id,
            extra=pool_scope(event) | error_fields(event.error), exc_info=self._traceback(event.error),
        )  # fmt: skip

    def _forcing(self, event: events.PoolForcefulShutdown) -> None:
        self._core.warning("forced shutdown: %s", event.message, extra=pool_scope(event))

    def _forced(self, event: events.PoolForcefulShutdownComplete) -> None:
        self._core.warning("forced shutdown complete; all jobs are unlocked", extra=pool_scope(event))

    def _force_failed(self, event: events.PoolForcefulShutdownError) -> None:
        self._core.error(
            "forced shutdown failed: %s; jobs may still be locked by %s", summarize(event.error),
            event.pool_id,
            extra=pool_scope(event) | error_fields(event.error), exc_info=self._traceback(event.error),
        )  # fmt: skip

    # -- recurring jobs ----------------------------------------------------------------------------------

    def _cron_started(self, event: events.CronStarted) -> None:
        self.cron_logger.info("scheduling recurring jobs", extra={"event": event.name})

    def _cron_backfill(self, event: events.CronBackfill) -> None:
        names = [item.identifier for item in event.items_to_backfill]
        self.cron_logger.info(
            "backfilling %s missed at %s: %s", count(len(names), "job"), minute(event.timestamp),
            ", ".join(names), extra={"event": event.name, "identifiers": names, "timestamp": event.timestamp},
        )  # fmt: skip

    def _cron_scheduled(self, event: events.CronScheduled) -> None:
        names = [job.identifier for job in event.jobs_and_identifiers]
        self.cron_logger.info(
            "added %s due at %s: %s", count(len(names), "job"), minute(event.timestamp), ", ".join(names),
            extra={"event": event.name, "identifiers": names, "timestamp": event.timestamp},
        )  # fmt: skip

    def _cron_premature(self, event: events.CronPrematureTimer) -> None:
        early = (event.expected_timestamp - event.current_timestamp).total_seconds()
        self.cron_logger.warning(
            "the clock moved back; waiting %s for the next minute", duration(early),
            extra={"event": event.name},
        )  # fmt: skip

    def _cron_overdue(self, event: events.CronOverdueTimer) -> None:
        late = (event.current_timestamp - event.expected_timestamp).total_seconds()
        self.cron_logger.warning(
            "%s late, after a pause or a clock change; catching up", duration(late),
            extra={"event": event.name},
        )  # fmt: skip

    def _traceback(self, error: BaseException) -> BaseException | None:
        return error if self._core.isEnabledFor(logging.DEBUG) else None


def _pause_fields(pause: Pause) -> dict[str, Any]:
    """What is paused and the terms, as far as there are any."""
    fields = {
        "task_identifier": pause.task_identifier, "queue_name": pause.queue_name,
        "until": pause.until, "reason": pause.reason,
    }  # fmt: skip
    return {name: value for name, value in fields.items() if value is not None}


def log_with_stack(
    logger: logging.Logger,
    level: int,
    fields: Mapping[str, Any],
    stack: str,
    message: str,
    *arguments: object,
) -> None:
    """Log the message with this stack below it; `fields` are attributes of the record."""
    if logger.isEnabledFor(level):
        record = logger.makeRecord(logger.name, level, __file__, 0, message, arguments, None)
        record.__dict__.update(fields)
        record.stack_info = f"Stack (most recent call last):\n{stack}"
        logger.handle(record)


def _named(job_ids: Sequence[int]) -> str:
    """The jobs in brackets, as far as a line has room for them."""
    if not job_ids:
        return ""
    more = ", …" if len(job_ids) > MOST_NAMED else ""
    return f" ({'job' if len(job_ids) == 1 else 'jobs'} {', '.join(map(str, job_ids[:MOST_NAMED]))}{more})"
