"""`utils.limits`: how many jobs of a limit run at once, and how many start in a period."""

from __future__ import annotations

import builtins
from datetime import timedelta
from typing import TYPE_CHECKING

from ...database.connections.connection import BlockingConnection
from ..blocking import SyncMember, blocking
from ..connections import ConnectionT, Member

if TYPE_CHECKING:
    from ...database.statements.limits import LimitSummary


class LimitsClient(Member[ConnectionT]):
    """Limits, which tasks declare with `Limit`, and their bounds.

    Bounds that are set here win over those in the code, in all workers and at once, until they are reset.
    """

    async def list(self, *, connection: ConnectionT | None = None) -> builtins.list[LimitSummary]:
        """Every limit: its bounds, which of them are set by hand, and how much of it is in use."""
        from ...database.statements import limits

        return await self._connections.call(connection, limits.list_limits)

    async def set(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: tuple[int, timedelta | float] | None = None,
        burst: int | None = None,
        connection: ConnectionT | None = None,
    ) -> LimitSummary:
        """Change bounds of a limit by hand, at once and in all workers; None leaves one as it is.

        They win over the bounds in the code and stay until `reset`, also when workers start again. With a
        concurrency of 0 no job starts.
        """
        from ...database.statements.limits import change_limit

        return await self._connections.call(
            connection, change_limit, name, concurrency=concurrency, rate=rate, burst=burst
        )

    async def reset(self, name: str, *, connection: ConnectionT | None = None) -> LimitSummary:
        """Remove what `set` has set: the bounds in the code hold again."""
        from ...database.statements.limits import restore_limit

        return await self._connections.call(connection, restore_limit, name)


class SyncLimitsClient(SyncMember):
    """The blocking form of `LimitsClient`."""

    _member = "limits"

    list = blocking(LimitsClient[BlockingConnection].list)
    set = blocking(LimitsClient[BlockingConnection].set)
    reset = blocking(LimitsClient[BlockingConnection].reset)
