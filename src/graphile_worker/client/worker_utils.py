"""WorkerUtils: the client. It validates, borrows a connection, and leaves the SQL to `database/statements/`.

Its methods are in `methods/`, by subject.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from ..database.connections.bound import BoundConnection
from ..database.connections.connection import UserConnection
from ..database.connections.foreign import as_connection
from ..database.migrations import MigrationReport, migrate
from ..hooks import Hooks
from .methods.adding import AddingJobs
from .methods.following import FollowingJobs
from .methods.inspecting import Inspecting
from .methods.managing import ManagingJobs
from .methods.pausing import Pausing
from .methods.recurring import RecurringJobs
from .methods.statistics import ReadingStatistics
from .methods.workers import ControllingWorkers

if TYPE_CHECKING:
    # Methods import these when called: a worker, and a program that only adds jobs, start without them.
    from ..values.options import WorkerOptions


class WorkerUtils(
    AddingJobs,
    ManagingJobs,
    Pausing,
    RecurringJobs,
    Inspecting,
    FollowingJobs,
    ReadingStatistics,
    ControllingWorkers,
):
    """Adds and manages jobs. Made by `make_worker_utils`; safe for concurrent use in one event loop.

    Methods that take a `connection` use it, and so its transaction, in place of one from the pool. It is a
    connection of asyncpg or psycopg, or an AsyncSession or AsyncConnection of SQLAlchemy. The client never
    begins, commits or rolls back your transaction.
    """

    @classmethod
    def bound(
        cls,
        connection: UserConnection,
        *,
        schema: str | None = None,
        hooks: Hooks | None = None,
        use_local_time: bool | None = None,
        options: WorkerOptions | None = None,
    ) -> Self:
        """A client for this connection or session alone: all its methods work in your transaction.

        It has no pool and needs no closing, so it can be made for each request. Options that are not given
        come from `options` if there is such an object, else from the environment and the configuration file.
        """
        from .methods.base import bound_options

        chosen = bound_options(schema, use_local_time, options)
        return cls(
            BoundConnection(as_connection(connection)),
            schema=chosen.schema_name,
            use_local_time=chosen.use_local_time,
            hooks=hooks,
            history_retention=chosen.history.retention,
        )

    async def migrate(self, *, connection: UserConnection | None = None) -> MigrationReport:
        """Install the schema, or upgrade it to the revision that this package supports."""
        async with self._connection(connection) as session:
            report = await migrate(session, self.schema)
        self._plain_jobs.forget()
        return report
