"""The blocking `utils.limits`: how many jobs of a limit run at once, and how many start in a period.

Written by `make reference` from `members/limits.py`: change that file, not this one.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from ..sync_calls import SyncCalls

if TYPE_CHECKING:
    from datetime import timedelta

    from ...database.connections.connection import BlockingConnection
    from ...database.statements.limits import LimitSummary


class SyncLimitsClient:
    """Limits, which tasks declare with `Limit`, and their bounds.

    Bounds that are set here win over those in the code, in all workers and at once, until they are reset.
    """

    def __init__(self, calls: SyncCalls) -> None:
        self._calls = calls

    def list(self, *, connection: BlockingConnection | None = None) -> builtins.list[LimitSummary]:
        """Every limit: its bounds, which of them are set by hand, and how much of it is in use."""
        return self._calls.run(connection, lambda utils: utils.limits.list())

    def set(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: tuple[int, timedelta | float] | None = None,
        burst: int | None = None,
        connection: BlockingConnection | None = None,
    ) -> LimitSummary:
        """Change bounds of a limit by hand, at once and in all workers; None leaves one as it is.

        They win over the bounds in the code and stay until `reset`, also when workers start again. With a
        concurrency of 0 no job starts.
        """
        return self._calls.run(
            connection, lambda utils: utils.limits.set(name, concurrency=concurrency, rate=rate, burst=burst)
        )

    def reset(self, name: str, *, connection: BlockingConnection | None = None) -> LimitSummary:
        """Remove what `set` has set: the bounds in the code hold again."""
        return self._calls.run(connection, lambda utils: utils.limits.reset(name))
