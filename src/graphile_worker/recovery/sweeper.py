"""Sweeper: looks every few seconds for workers that are out of reach, and takes the jobs of dead ones.

Every worker has one; an advisory lock lets only one sweep at a time. Between sweeps it waits a little more or
less than the interval, so that many of them do not march in step, and not beyond the moment at which a worker
that is out of reach counts as dead.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from ..clock import Clock
from ..hooks import Hooks
from ..options import WorkerOptions
from .orphaned_jobs import forget_recoveries
from .periodic import Periodic
from .sweep import RunsStatements, Sweep

SPREAD = 0.2  # of the interval, to either side
SOON = 0.05  # seconds after the moment for which a sweep waits
FORGET_EVERY = 100  # sweeps


class Sweeper:
    """The sweeps of one worker."""

    def __init__(
        self,
        run: RunsStatements,
        options: WorkerOptions,
        hooks: Hooks,
        clock: Clock,
        *,
        pool_id: str,
        is_in_reach: Callable[[], bool],
        share: Callable[[], float] = random.random,
    ) -> None:
        self._run = run
        self._options = options
        self._is_in_reach = is_in_reach
        self._share = share
        self._count = 0
        self._sweep = Sweep(
            run,
            options.schema_name,
            hooks,
            own_id=pool_id,
            delay=options.recovery_delay,
            max_recoveries=options.max_recoveries,
        )
        self.loop = Periodic("looking for dead workers", self._turn, clock, first_after=self._delay() / 2)

    async def _turn(self) -> float:
        delay = self._delay()
        if not self._is_in_reach():  # one that does not know about itself does not judge others
            return delay
        report = await self._sweep()
        self._count += 1
        if self._count % FORGET_EVERY == 0:
            await self._run(lambda connection: forget_recoveries(connection, self._options.schema_name))
        return min([delay, *(remaining + SOON for remaining in report.lost.values())])

    def _delay(self) -> float:
        return self._options.sweep_interval * (1 - SPREAD + 2 * SPREAD * self._share())
