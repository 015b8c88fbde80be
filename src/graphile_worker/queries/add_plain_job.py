"""The fast path for one job that has neither key nor queue, outside a transaction.

Without contention, one statement inserts the job and notifies workers. PostgreSQL commits only one notifying
transaction at a time, including its wait for the disk. So under contention jobs are committed first, and the
notification follows in a transaction of its own. A procedure does both in one round trip, but is slower than
the statement when there is no contention: it is used for a while after contention was seen.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from .. import sqlstates
from ..db.connection import Connection, Row
from ..db.errors import sqlstate_of
from ..db.retry import is_conflict
from ..job import Job
from ..payload import encode
from ..schema_name import SchemaName
from ..spec import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, JobSpec
from .large_payloads import LARGE_PAYLOAD, warn_of_large_payload
from .spec_columns import time_and_delay
from .statement import load_statement

CONTENDED_ADDS = 200  # jobs that take the procedure after contention was seen


class PlainJobs:
    """Adds plain jobs for one client, by whichever statement is faster at the moment."""

    def __init__(self, schema: SchemaName) -> None:
        self._schema = schema
        self._contended_adds = 0
        self._may_insert = True  # until the server refuses
        self._has_procedure = True

    def forget(self) -> None:
        """Try everything again: the schema has changed."""
        self._may_insert = self._has_procedure = True

    async def add(self, connection: Connection, spec: JobSpec, now: datetime | None) -> Job | None:
        """Add a job. The connection must not be in a transaction, which would keep the lock or be ended.

        Returns None, and has added nothing, if the job needs the general statement: its task is new to the
        database, or the role may not insert. `now` replaces the server's clock.
        """
        if not self._may_insert:
            return None
        payload = encode(spec.payload)
        if len(payload) > LARGE_PAYLOAD:
            warn_of_large_payload(spec.task_identifier, payload)
        run_at, delay = (None, None) if spec.run_at is now is None else time_and_delay(spec.run_at, now)
        values = (spec.task_identifier, payload, run_at, delay, spec.max_attempts, spec.priority)
        is_contended = self._contended_adds > 0 and self._has_procedure
        try:
            if is_contended:
                self._contended_adds -= 1
                flags = None if spec.flags is None else list(spec.flags)
                row = await connection.fetchrow(
                    load_statement("add/add_plain_job", self._schema), *values, flags
                )
            else:
                text = _flags_text(spec) if spec.flags else None
                row = await connection.fetchrow(load_statement("add/insert_job", self._schema), *values, text)
        except Exception as error:
            if not self._is_unavailable(sqlstate_of(error)):
                raise
            return None
        if row is None or row[0] is None:
            return None
        if not is_contended and not row[5]:  # contention: another client is about to notify
            self._contended_adds = CONTENDED_ADDS
            try:
                await connection.fetchrow(load_statement("add/announce_job", self._schema))
            except Exception as error:
                if not is_conflict(error):  # a retry would add the committed job twice
                    raise
        return _added(row, spec, payload)

    def _is_unavailable(self, code: str | None) -> bool:
        """Whether the fast path does not exist here; then it is not tried again."""
        if code == sqlstates.UNDEFINED_FUNCTION:
            self._has_procedure = False
        elif code == sqlstates.INSUFFICIENT_PRIVILEGE:
            self._may_insert = False
        else:
            return False
        return True


def _flags_text(spec: JobSpec) -> str:
    return msgspec.json.encode(dict.fromkeys(spec.flags or (), True)).decode()


def _added(row: Row, spec: JobSpec, payload: str) -> Job:
    priority = DEFAULT_PRIORITY if spec.priority is None else spec.priority
    max_attempts = DEFAULT_MAX_ATTEMPTS if spec.max_attempts is None else spec.max_attempts
    return Job(row[0], payload, priority, row[2], 0, max_attempts, None, row[3], row[3],
               None, None, 0, row[1], row[4], None, None, spec.task_identifier)  # fmt: skip
