"""ProcessState: the pools of one worker process, and its metrics, for whatever serves them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ...hooks import WorkerContext
from .health import PoolHealth, ProcessHealth
from .watched_pool import PoolProbe


class ProcessState:
    """The pools that run in this process; usually one."""

    def __init__(self) -> None:
        self._pools: list[PoolProbe] = []
        self._has_ended = False

    def add(self, worker: WorkerContext) -> None:
        """Follow this pool until it ends."""
        self._has_ended = False
        self._pools.append(PoolProbe(worker, self._remove))

    def clear(self) -> None:
        """No pool runs any more."""
        self._pools.clear()
        self._has_ended = True

    def _remove(self, pool: PoolProbe) -> None:
        if pool in self._pools:
            self._pools.remove(pool)
        self._has_ended = not self._pools

    def health(self) -> ProcessHealth:
        """How they are now."""
        pools: Sequence[PoolHealth] = [pool.health() for pool in self._pools]
        return ProcessHealth(pid=os.getpid(), pools=list(pools), has_ended=self._has_ended)
