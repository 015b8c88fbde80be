"""Which way a job takes into the database that has neither key nor queue.

Alone, one statement adds and announces it. PostgreSQL lets only one transaction at a time commit that
notifies, and it waits for the disk meanwhile; so where several add at the same moment, jobs are committed
first and announced in a transaction of their own. A procedure does both in one round trip, but takes longer
than the statement does when nobody is in the way: it is called for a while after others were met.
"""

from __future__ import annotations

from datetime import datetime

from ..db.connection import Connection
from ..db.errors import sqlstate_of
from ..job import Job
from ..queries.add_plain_job import announce_job, call_add_plain_job, insert_job
from ..schema_name import SchemaName
from ..spec import JobSpec

CROWD = 200  # jobs that are added by the procedure after somebody else was met
NO_RIGHT = "42501"
NO_PROCEDURE = "42883"


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

    def fits(self, connection: Connection, spec: JobSpec) -> bool:
        """Whether the job may go this way; in a transaction a lock would last, and a procedure end it."""
        return (
            self._may_insert
            and spec.job_key is None
            and spec.queue_name is None
            and not connection.is_in_transaction()
        )

    async def add(self, connection: Connection, spec: JobSpec, now: datetime | None) -> Job | None:
        """Add a job that fits; None, and nothing done, if it has to take the way of all others."""
        try:
            if self._crowd > 0 and self._has_procedure:
                self._crowd -= 1
                return await call_add_plain_job(connection, self._schema, spec, now=now)
            added = await insert_job(connection, self._schema, spec, now=now)
        except Exception as error:
            if not self._is_missing(sqlstate_of(error)):
                raise
            return None
        if added is None:
            return None
        job, is_announced = added
        if not is_announced:
            self._crowd = CROWD
            await announce_job(connection, self._schema)
        return job

    def _is_missing(self, code: str | None) -> bool:
        """Whether it was refused because this way does not exist here, which is not tried again then."""
        if code == NO_PROCEDURE:
            self._has_procedure = False
        elif code == NO_RIGHT:
            self._may_insert = False
        else:
            return False
        return True
