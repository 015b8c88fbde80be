"""Sweeper: sweeps every few seconds.

Every worker has one; an advisory lock lets only one sweep at a time. The interval has jitter, so that workers
do not sweep in lockstep, and ends early when an unreachable worker is about to be declared dead.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from ..clock import Clock
from ..failure_handler import FailureHandler
from ..hooks import Hooks
from ..options import WorkerOptions
from ..retention import RetentionPolicy
from .orphaned_jobs import purge_recoveries
from .periodic import Periodic
from .sweep import StatementRunner, Sweep

JITTER = 0.2  # of the interval, either way
MARGIN = 0.05  # seconds after a worker is due to be declared dead
PURGE_EVERY = 100  # sweeps


class Sweeper:
    """The sweeps of one worker."""

    def __init__(
        self,
        run: StatementRunner,
        options: WorkerOptions,
        hooks: Hooks,
        clock: Clock,
        *,
        pool_id: str,
        is_alive: Callable[[], bool],
        handlers: Mapping[str, FailureHandler] | None = None,
        retention_policy: RetentionPolicy | None = None,
        share: Callable[[], float] = random.random,
    ) -> None:
        """`is_alive`: whether this worker's own heartbeats arrive."""
        self._run = run
        self._options = options
        self._is_alive = is_alive
        self._share = share
        self._count = 0
        self._sweep = Sweep(
            run,
            options.schema_name,
            hooks,
            own_id=pool_id,
            delay=options.recovery_delay,
            max_recoveries=options.max_recoveries,
            handlers=handlers,
            retention_policy=retention_policy,
            error_retention=options.error_retention,
        )
        self.loop = Periodic("sweep", self._run_sweep, clock, first_after=self._delay() / 2)

    async def _run_sweep(self) -> float:
        delay = self._delay()
        if not self._is_alive():  # a worker that is unreachable itself does not judge others
            return delay
        report = await self._sweep()
        self._count += 1
        if self._count % PURGE_EVERY == 0:
            await self._run(lambda connection: purge_recoveries(connection, self._options.schema_name))
        return min([delay, *(dead_in + MARGIN for dead_in in report.lost.values())])

    def _delay(self) -> float:
        return self._options.sweep_interval * (1 - JITTER + 2 * JITTER * self._share())
