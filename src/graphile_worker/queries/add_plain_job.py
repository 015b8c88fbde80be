"""Adding one job that has neither key nor queue, outside a transaction: which of the quick ways it takes.

Alone, one statement adds and announces it. PostgreSQL lets only one transaction at a time commit that
notifies, and it waits for the disk meanwhile; so where several add at the same moment, jobs are committed
first and announced in a transaction of their own. A procedure does both in one round trip, but takes longer
than the statement does when nobody is in the way: it is called for a while after others were met.
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
from ..spec import JobSpec
from ..sql import load
from .result_order import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY
from .spec_columns import time_and_delay

CROWD = 200  # jobs that are added by the procedure after somebody else was met


class PlainJobs:
    """Adds jobs for one client, as quickly as can be done at the moment."""

    def __init__(self, schema: SchemaName) -> None:
        self._schema = schema
        self._crowd = 0
        self._may_insert = True  # until the server says no
        self._has_procedure = True

    def forget(self) -> None:
        """The schema has changed: what was missing may be there now."""
        self._may_insert = self._has_procedure = True

    async def add(self, connection: Connection, spec: JobSpec, now: datetime | None) -> Job | None:
        """Add a job, on a connection that is not in a transaction: a lock would last, a procedure end it.

        None, and nothing done, if the job has to take the way of all others: the task is new to the database,
        or the role may not insert. `now` takes the place of the server's clock.
        """
        if not self._may_insert:
            return None
        payload = encode(spec.payload)
        run_at, delay = (None, None) if spec.run_at is now is None else time_and_delay(spec.run_at, now)
        values = (spec.identifier, payload, run_at, delay, spec.max_attempts, spec.priority)
        is_crowded = self._crowd > 0 and self._has_procedure
        try:
            if is_crowded:
                self._crowd -= 1
                flags = None if spec.flags is None else list(spec.flags)
                row = await connection.fetchrow(load("add/add_plain_job", self._schema), *values, flags)
            else:
                text = _flags_text(spec) if spec.flags else None
                row = await connection.fetchrow(load("add/insert_job", self._schema), *values, text)
        except Exception as error:
            if not self._is_missing(sqlstate_of(error)):
                raise
            return None
        if row is None or row[0] is None:
            return None
        if not is_crowded and not row[5]:  # somebody else is about to announce a job
            self._crowd = CROWD
            try:
                await connection.fetchrow(load("add/announce_job", self._schema))
            except Exception as error:
                if not is_conflict(error):  # else the client would add the job again, which is committed
                    raise
        return _added(row, spec, payload)

    def _is_missing(self, code: str | None) -> bool:
        """Whether it was refused because this way does not exist here, which is not tried again then."""
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
    most = DEFAULT_MAX_ATTEMPTS if spec.max_attempts is None else spec.max_attempts
    return Job(row[0], payload, priority, row[2], 0, most, None, row[3], row[3],
               None, None, 0, row[1], row[4], None, None, spec.identifier)  # fmt: skip
