"""`utils.limits`: how many jobs of a limit run at once, and how many start in a period."""

from __future__ import annotations

import builtins
from datetime import timedelta
from typing import TYPE_CHECKING

from ...database.connections.connection import UserConnection
from ..connections import ClientConnections

if TYPE_CHECKING:
    from ...database.statements.limits import LimitSummary


class LimitsClient:
    """Limits, which tasks declare with `Limit`, and their bounds.

    Bounds that are set here win over those in the code, in all workers and at once, until they are reset.
    """

    def __init__(self, connections: ClientConnections) -> None:
        self._connections = connections

    async def list(self, *, connection: UserConnection | None = None) -> builtins.list[LimitSummary]:
        """Every limit: its bounds, which of them are set by hand, and how much of it is in use."""
        from ...database.statements import limits

        async with self._connections.borrow(connection) as session:
            return await limits.list_limits(session, self._connections.schema)

    async def set(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: tuple[int, timedelta | float] | None = None,
        burst: int | None = None,
        connection: UserConnection | None = None,
    ) -> LimitSummary:
        """Change bounds of a limit by hand, at once and in all workers; None leaves one as it is.

        They win over the bounds in the code and stay until `reset`, also when workers start again. With a
        concurrency of 0 no job starts.
        """
        from ...database.statements.limits import change_limit

        async with self._connections.borrow(connection) as session:
            return await change_limit(
                session, self._connections.schema, name, concurrency=concurrency, rate=rate, burst=burst
            )

    async def reset(self, name: str, *, connection: UserConnection | None = None) -> LimitSummary:
        """Remove what `set` has set: the bounds in the code hold again."""
        from ...database.statements.limits import restore_limit

        async with self._connections.borrow(connection) as session:
            return await restore_limit(session, self._connections.schema, name)
