"""What a pool stores beside outcomes: records of finished jobs and their errors, and progress.

HistoryRecorder decides what is kept and makes the partitions for it; ErrorGroupCounter counts errors by
fingerprint; ProgressReporter stores what tasks report.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from contextvars import copy_context

import msgspec

from ...database.connections import sqlstates
from ...database.connections.connection import Connection
from ...database.connections.errors import explained, is_surely_undone, sqlstate_of
from ...database.statements.write_plan import NOTHING_KEPT, ErrorRecord, Outcomes
from ...errors.text import message_of, qualified_name
from ...history.error_groups import MAX_MESSAGE, CountedErrors, fingerprint, place_in, write_error_groups
from ...history.task_reports import ProgressReport, write_progress
from ...history.upkeep import ERRORS, HISTORY, add_partitions, name_tasks, prepare_history
from ...hooks.interceptors import Redactor, redacted_json, redacted_text
from ...values.job import Job
from ...values.outcome import Failed, Finished, Snoozed, retention_of
from ...values.retention import Retention, RetentionPolicy, is_awaited
from ..context import FailureLog, JobTakers, PoolContext
from ..session import Sessions

MAX_ERRORS = 100
"""Errors of one fingerprint that a pool keeps per minute; the rest are only counted."""
MINUTE = 60.0
MAX_CACHED = 200
REFUSED = (sqlstates.INSUFFICIENT_PRIVILEGE, sqlstates.READ_ONLY_SQL_TRANSACTION, sqlstates.UNDEFINED_TABLE)
STORE_AFTER = 5.0  # seconds after the first error
MAX_GROUPS = 1_000  # that are counted at the same time; beyond that errors have no pattern
STORE_WITHIN = 5.0
UNCOUNTED = (sqlstates.UNDEFINED_TABLE, sqlstates.INVALID_SCHEMA_NAME, sqlstates.INSUFFICIENT_PRIVILEGE)
PROGRESS_INTERVAL = 1.0  # seconds

logger = logging.getLogger("graphile_worker.worker")


class HistoryRecorder:
    """Decides what is written beside the outcomes of one pool."""

    def __init__(
        self,
        context: PoolContext,
        sessions: Sessions,
        retention_policy: RetentionPolicy,
        redactors: Sequence[Redactor],
    ) -> None:
        self.version = context.options.app_version
        self._retention_policy = retention_policy
        self._redactors = redactors
        self._sessions = sessions
        self._schema = context.schema
        self._error_retention = context.options.history.error_retention  # seconds; 0 not to keep errors
        self._fingerprints: dict[tuple[str, str, str], str] = {}
        self._recent: Counter[str] = Counter()
        self._minute = 0.0
        self._counts = ErrorGroupCounter(context, sessions, redactors)
        self.is_on = True
        """False if this role may not write to the history: then nothing is kept."""

    def record(self, finished: Finished, outcome: Failed | Snoozed) -> ErrorRecord | None:
        """What to keep of an attempt; None for nothing.

        A snooze is no error. But a snoozed job that cannot run again, because its key was used again, has
        ended.
        """
        job, retention = finished.job, self._of_failed(finished.job)
        error_type = mark = ""
        is_kept = False
        if isinstance(outcome, Failed):
            error_type = qualified_name(outcome.error)
            mark = self._fingerprint(job.task_identifier, error_type, outcome)
            is_kept = self._error_retention > 0 and self._is_below_limit(mark)
        elif retention is None:
            return None
        return ErrorRecord(
            seconds=finished.duration,
            retention=retention,
            keep_error_seconds=self._error_retention if is_kept else None,
            error_type=error_type,
            traceback=outcome.traceback if is_kept and isinstance(outcome, Failed) else "",
            fingerprint=mark,
            due_at=job.raw_run_at,
            is_awaited=is_awaited(job.raw_flags),
            payload=self._redacted_payload(job, outcome.remaining_payload, retention),
        )

    def record_unless_kept(self, batch: Sequence[Finished]) -> list[ErrorRecord | None]:
        """For each failed job that is retried what is counted; None if its error is to be kept."""
        if not self.is_on:
            return [NOTHING_KEPT] * len(batch)
        kept, records = Counter[str](), list[ErrorRecord | None]()
        for finished in batch:
            if not isinstance(outcome := finished.outcome, Failed):
                raise TypeError("only failures have errors")
            error_type = qualified_name(outcome.error)
            mark = self._fingerprint(finished.job.task_identifier, error_type, outcome)
            if self._error_retention > 0 and kept[mark] < MAX_ERRORS - self._kept_lately(mark):
                kept[mark] += 1  # by the write of its own that it gets
                records.append(None)
            else:
                records.append(msgspec.structs.replace(NOTHING_KEPT, error_type=error_type, fingerprint=mark))
        return records

    def keep_cancelled(self, finished: Finished) -> tuple[Retention | None, str | None]:
        """How to keep a cancelled job, like a failure, and its payload if that is redacted."""
        job = finished.job
        retention = self._of_failed(job) if self.is_on else None
        return retention, self._redacted_payload(job, None, retention)

    def _redacted_payload(self, job: Job, remaining: str | None, retention: Retention | None) -> str | None:
        """The payload as it is kept; None if that is as it is, or not at all."""
        if not self._redactors or retention is None or not retention.payload:
            return None
        raw = remaining or job.raw_payload
        return redacted_json(self._redactors, "payload", job.task_identifier, raw)

    def count(self, outcomes: Outcomes, batch: Sequence[Finished], final: AbstractSet[int]) -> None:
        """Count the failures of a batch that was written; those in `final` are permanent."""
        if self._error_retention <= 0:
            return
        records = {failure.job_id: failure.record for failure in outcomes.failed}
        for finished in batch:
            outcome, record = finished.outcome, records.get(finished.job.id)
            if isinstance(outcome, Failed) and record is not None:
                is_final = finished.job.id in final
                self._counts.add(finished, outcome, record.fingerprint, record.error_type, is_final=is_final)

    def _fingerprint(self, task_identifier: str, error_type: str, outcome: Failed) -> str:
        """Cached, because a task that fails often fails in the same way."""
        key = (task_identifier, outcome.message, outcome.traceback)
        known = self._fingerprints.get(key)
        if known is None:
            known = fingerprint(task_identifier, error_type, message_of(outcome.error), outcome.traceback)
            if len(self._fingerprints) >= MAX_CACHED:
                self._fingerprints.clear()
            self._fingerprints[key] = known
        return known

    def _is_below_limit(self, mark: str) -> bool:
        lately = self._kept_lately(mark)
        self._recent[mark] = lately + 1
        return lately < MAX_ERRORS

    def _kept_lately(self, mark: str) -> int:
        now = time.monotonic()
        if now - self._minute >= MINUTE:
            self._minute = now
            self._recent.clear()
        return self._recent[mark]

    async def prepare(self, identifiers: Sequence[str]) -> None:
        """Make the partitions that the first writes need, and remember the names of these tasks.

        In a transaction of the caller, a write makes those that it misses: others would wait for the locks.
        """

        async def statement(connection: Connection) -> None:
            if connection.is_in_transaction():
                await self._guarded(lambda: name_tasks(connection, self._schema, identifiers))
            else:
                history, errors = self._kept()
                await self._guarded(
                    lambda: prepare_history(
                        connection, self._schema, identifiers, history=history, errors=errors
                    )
                )

        await self._sessions.run(statement)

    async def close(self) -> None:
        """Store the counts of errors that are left, if the database answers soon."""
        await self._counts.close()

    async def add_partitions(self, connection: Connection, batch: Sequence[Finished] = ()) -> None:
        """Make the partitions for what this pool keeps, and for these jobs."""
        history, errors = self._kept(batch)
        if self.is_on:
            await self._guarded(
                lambda: add_partitions(connection, self._schema, history=history, errors=errors)
            )

    def _kept(self, batch: Sequence[Finished] = ()) -> tuple[set[float], list[float]]:
        """For how many seconds finished jobs and errors are kept."""
        retentions = (*self._retention_policy.every(), *map(self._retention_of, batch))
        errors = [self._error_retention] if self._error_retention > 0 else []
        return {retention.seconds for retention in retentions if retention}, errors

    def _retention_of(self, finished: Finished) -> Retention | None:
        return retention_of(finished.outcome) or self._of_failed(finished.job)

    def _of_failed(self, job: Job) -> Retention | None:
        """How long this job is kept if it fails."""
        return self._retention_policy.for_failed(job.task_identifier, job.raw_flags)

    async def _guarded(self, work: Callable[[], Awaitable[object]]) -> None:
        """Keep nothing if this role may not."""
        try:
            await work()
        except Exception as error:
            if sqlstate_of(error) not in REFUSED:
                raise
            self._switch_off(error)

    def is_refused(self, error: BaseException) -> bool:
        """Whether a write failed because of the history, which is switched off then, and not of the jobs."""
        names = (HISTORY, ERRORS)
        if sqlstate_of(error) not in REFUSED or not any(name in str(error) for name in names):
            return False
        if self.is_on:
            self._switch_off(error)
        return True

    def _switch_off(self, error: BaseException) -> None:
        self.is_on = False
        logger.warning(
            "this worker cannot write to the history (%s), so it keeps neither finished jobs nor errors; to "
            "keep them, run `graphile-worker migrate` and workers as the owner of the schema",
            message_of(error),
        )


class ErrorGroupCounter:
    """Counts the errors of one pool by fingerprint, and stores the counts every few seconds.

    As with statistics, nothing counts twice: what may have been stored before the connection broke is
    dropped.
    """

    def __init__(self, context: PoolContext, sessions: Sessions, redactors: Sequence[Redactor]) -> None:
        self._redactors = redactors
        self._sessions = sessions
        self._schema = context.schema
        self._version = context.options.app_version
        self._counted: dict[str, CountedErrors] = {}
        self._latest: dict[str, tuple[str, BaseException]] = {}
        self._task: asyncio.Task[None] | None = None
        self._failures = FailureLog(
            context, "groups of errors cannot be stored: %s", "groups of errors are stored again"
        )
        self._is_storing = False
        self._is_on = True

    def add(
        self, finished: Finished, outcome: Failed, fingerprint: str, error_type: str, *, is_final: bool
    ) -> None:
        """Count an error that was written; `is_final`: the job failed permanently with it."""
        now, job = time.monotonic(), finished.job
        known = self._counted.get(fingerprint)
        if known is None:
            if len(self._counted) >= MAX_GROUPS or not self._is_on:
                return
            self._counted[fingerprint] = CountedErrors(
                task_id=job.task_id,
                error_type=error_type,
                message="",
                place=place_in(outcome.traceback),
                first_at=now,
                last_at=now,
                errors=1,
                permanent=int(is_final),
                job_id=job.id,
            )
        else:
            known.errors += 1
            known.permanent += is_final
            known.last_at = now
            known.job_id = job.id
        self._latest[fingerprint] = job.task_identifier, outcome.error
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(
                self._store_later(), name="graphile-worker error groups"
            )

    async def close(self) -> None:
        """Store what is left, if the database answers soon."""
        if (task := self._task) is not None:
            if self._is_storing:
                await asyncio.wait((task,), timeout=STORE_WITHIN)
            task.cancel()
            await asyncio.wait((task,))
        with suppress(Exception):
            async with asyncio.timeout(STORE_WITHIN):
                await self._store()

    async def _store_later(self) -> None:
        try:
            while self._counted:
                await asyncio.sleep(STORE_AFTER)
                self._is_storing = True
                try:
                    await self._store()
                except Exception as error:
                    self._failed(error)
                else:
                    self._failures.succeeded()
                finally:
                    self._is_storing = False
        finally:
            self._task = None

    def _failed(self, error: Exception) -> None:
        if sqlstate_of(error) in UNCOUNTED:
            self._is_on = False
            self._counted.clear()
            self._latest.clear()
            logger.warning("errors are not counted: %s; jobs run as usual", explained(error))
        else:
            self._failures.failed(error)

    async def _store(self) -> None:
        counted, self._counted = self._counted, {}
        latest, self._latest = self._latest, {}
        if not counted:
            return
        for mark, (task_identifier, error) in latest.items():
            message = message_of(error)
            if self._redactors:
                message = redacted_text(self._redactors, task_identifier, message)
            counted[mark].message = message[:MAX_MESSAGE]
        now = time.monotonic()
        try:
            await self._sessions.run(
                lambda connection: write_error_groups(connection, self._schema, counted, now, self._version)
            )
        except Exception as error:
            if is_surely_undone(error):
                self._put_back(counted)
            raise

    def _put_back(self, unwritten: dict[str, CountedErrors]) -> None:
        """Add what was not stored to what was counted in the meantime."""
        for mark, earlier in unwritten.items():
            later = self._counted.get(mark)
            if later is None:
                self._counted[mark] = earlier
            else:
                later.errors += earlier.errors
                later.permanent += earlier.permanent
                later.first_at = earlier.first_at


def with_redacted_errors(batch: Sequence[Finished], redactors: Sequence[Redactor]) -> list[Finished]:
    """The batch as it is written to `last_error` and the history; observers and logs get the originals."""
    return [
        _redacted(finished, finished.outcome, redactors) if isinstance(finished.outcome, Failed) else finished
        for finished in batch
    ]


def _redacted(finished: Finished, outcome: Failed, redactors: Sequence[Redactor]) -> Finished:
    identifier = finished.job.task_identifier
    message = redacted_text(redactors, identifier, outcome.message)
    traceback = outcome.traceback and redacted_text(redactors, identifier, outcome.traceback)
    return msgspec.structs.replace(
        finished, outcome=msgspec.structs.replace(outcome, message=message, traceback=traceback)
    )


class ProgressReporter:
    """Keeps the progress of all jobs of one pool in memory, and stores all of it once a second.

    A report costs the task an assignment. Nothing runs while no task reports.
    """

    def __init__(self, context: PoolContext, sessions: Sessions, lanes: JobTakers) -> None:
        self._sessions = sessions
        self._schema = context.schema
        self._clock = context.clock
        self._lanes = lanes
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()  # not that of the first job that reports something
        self._changed: dict[int, ProgressReport] = {}
        self._stored: set[int] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._failures = FailureLog(context, "progress cannot be stored: %s", "progress is stored again")

    def report(self, job_id: int, report: ProgressReport) -> None:
        """Take a report; may be called from any thread."""
        self._changed[job_id] = report
        if (self._task is None or self._task.done()) and not self._is_closed:
            with suppress(RuntimeError):  # the loop was closed
                self._loop.call_soon_threadsafe(self._start)

    async def close(self) -> None:
        """Delete what is stored, if the database answers soon."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._changed.clear()
            with suppress(Exception):
                async with asyncio.timeout(PROGRESS_INTERVAL):
                    await self._store(ended=self._stored)

    def _start(self) -> None:
        if (self._task is None or self._task.done()) and not self._is_closed:
            self._task = self._loop.create_task(
                self._work(), name="graphile-worker progress", context=self._context.copy()
            )

    async def _work(self) -> None:
        while not self._is_closed:
            running = {job.id for job in self._lanes.running}
            try:
                await self._store(ended=self._stored - running, running=running)
            except Exception as error:  # progress is not worth an interruption
                self._failures.failed(error)
            else:
                self._failures.succeeded()
            if not self._stored and not self._changed:
                self._task = None
                return
            await self._clock.sleep(PROGRESS_INTERVAL)

    async def _store(self, *, ended: Collection[int], running: Collection[int] = ()) -> None:
        changed, self._changed = self._changed, {}
        reports = {job_id: changed[job_id] for job_id in changed if job_id in running}
        gone = sorted(ended)
        if not reports and not gone:
            return
        await self._sessions.run(lambda connection: write_progress(connection, self._schema, reports, gone))
        self._stored = (self._stored - set(gone)) | reports.keys()
