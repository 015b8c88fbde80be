"""HistoryRecorder: what this pool keeps of the jobs it ends, and the partitions that it needs for that."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from ... import sqlstates
from ...db.connection import Connection
from ...db.errors import sqlstate_of
from ...error_parts import qualified_name
from ...error_text import message_of
from ...history.fingerprint import fingerprint
from ...history.partitions import ERRORS, HISTORY, add_partitions, name_tasks
from ...hooks.redaction import Redactor, redacted_json, redacted_text
from ...job import Job
from ...outcome import Failed, Finished, Snoozed, retention_of
from ...queries.write_plan import ErrorRecord, Outcomes
from ...retention import Retention, RetentionPolicy, is_awaited
from ...schema_name import SchemaName
from .error_counts import ErrorCounts

MAX_ERRORS = 100
"""Errors of one fingerprint that a pool keeps per minute; the rest are only counted."""
MINUTE = 60.0
MAX_CACHED = 200
REFUSED = (
    sqlstates.INSUFFICIENT_PRIVILEGE,
    sqlstates.READ_ONLY_SQL_TRANSACTION,
    sqlstates.UNDEFINED_TABLE,
)

logger = logging.getLogger("graphile_worker.worker")


class HistoryRecorder:
    """Decides what is written beside the outcomes of one pool."""

    def __init__(
        self,
        retention_policy: RetentionPolicy,
        schema: SchemaName,
        *,
        error_retention: float,
        version: str | None = None,
        redactors: Sequence[Redactor] = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`error_retention`: seconds to keep errors; 0 not to keep them. `version`: of the application."""
        self.version = version
        self._retention_policy = retention_policy
        self.redactors = redactors
        self._schema = schema
        self._error_retention = error_retention
        self._monotonic = monotonic
        self._fingerprints: dict[tuple[str, str, str], str] = {}
        self._recent: Counter[str] = Counter()
        self._minute = 0.0
        self.counts: ErrorCounts | None = None
        """Counts errors by fingerprint; set by the pool if errors are kept."""
        self.is_on = True
        """False if this role may not write to the history: then nothing is kept."""

    def record(self, finished: Finished, outcome: Failed | Snoozed) -> ErrorRecord | None:
        """What to keep of an attempt; None for nothing."""
        if isinstance(outcome, Snoozed):
            return self._record_snoozed(finished, outcome)
        job, error_type = finished.job, qualified_name(outcome.error)
        mark = self._fingerprint(job.task_identifier, error_type, outcome)
        is_kept = self._error_retention > 0 and self._is_below_limit(mark)
        retention = self._retention_policy.for_failed(job.task_identifier, job.raw_flags)
        return ErrorRecord(
            seconds=finished.duration,
            retention=retention,
            keep_error_seconds=self._error_retention if is_kept else None,
            error_type=error_type,
            traceback=outcome.traceback if is_kept else "",
            fingerprint=mark,
            due_at=job.raw_run_at,
            is_awaited=is_awaited(job.raw_flags),
            payload=self._redacted_payload(job, outcome, retention),
        )

    def _record_snoozed(self, finished: Finished, outcome: Snoozed) -> ErrorRecord | None:
        """No error. But a job that cannot run again, because its key was used again, has ended."""
        job = finished.job
        retention = self._retention_policy.for_failed(job.task_identifier, job.raw_flags)
        if retention is None:
            return None
        return ErrorRecord(
            seconds=finished.duration,
            retention=retention,
            keep_error_seconds=None,
            error_type="",
            traceback="",
            fingerprint="",
            due_at=job.raw_run_at,
            is_awaited=is_awaited(job.raw_flags),
            payload=self._redacted_payload(job, outcome, retention),
        )

    def keep_cancelled(self, finished: Finished) -> tuple[Retention | None, str | None]:
        """How to keep a cancelled job, like a failure, and its payload if that is redacted."""
        job = finished.job
        retention = (
            self._retention_policy.for_failed(job.task_identifier, job.raw_flags) if self.is_on else None
        )
        if not self.redactors or retention is None or not retention.payload:
            return retention, None
        return retention, redacted_json(self.redactors, "payload", job.task_identifier, job.raw_payload)

    def _redacted_payload(
        self, job: Job, outcome: Failed | Snoozed, retention: Retention | None
    ) -> str | None:
        if not self.redactors or retention is None or not retention.payload:
            return None
        raw = outcome.remaining_payload or job.raw_payload
        return redacted_json(self.redactors, "payload", job.task_identifier, raw)

    def count(self, outcomes: Outcomes, batch: Sequence[Finished], final: AbstractSet[int]) -> None:
        """Count the failures of a batch that was written; those in `final` are permanent."""
        if self.counts is None:
            return
        records = {failure.job_id: failure.record for failure in outcomes.failed}
        for finished in batch:
            outcome, record = finished.outcome, records.get(finished.job.id)
            if isinstance(outcome, Failed) and record is not None:
                is_final = finished.job.id in final
                self.counts.add(finished, outcome, record.fingerprint, record.error_type, is_final=is_final)

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
        now = self._monotonic()
        if now - self._minute >= MINUTE:
            self._minute = now
            self._recent.clear()
        self._recent[mark] += 1
        return self._recent[mark] <= MAX_ERRORS

    async def prepare(self, connection: Connection, identifiers: Sequence[str]) -> None:
        """Make the partitions that the first writes need, and remember the names of these tasks.

        In a transaction of the caller, a write makes those that it misses: others would wait for the locks.
        """
        await self._guarded(lambda: name_tasks(connection, self._schema, identifiers))
        if not connection.is_in_transaction():
            await self.add_partitions(connection)

    async def add_partitions(self, connection: Connection, batch: Sequence[Finished] = ()) -> None:
        """Make the partitions for what this pool keeps, and for these jobs."""
        seconds = {
            retention.seconds
            for retention in (*self._retention_policy.every(), *map(self._retention_of, batch))
            if retention
        }
        errors = [self._error_retention] if self._error_retention > 0 else []
        if self.is_on:
            await self._guarded(
                lambda: add_partitions(connection, self._schema, history=seconds, errors=errors)
            )

    def _retention_of(self, finished: Finished) -> Retention | None:
        job = finished.job
        return retention_of(finished.outcome) or self._retention_policy.for_failed(
            job.task_identifier, job.raw_flags
        )

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
