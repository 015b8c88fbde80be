"""A worker that holds jobs in an open transaction for as long as a test needs it."""

from __future__ import annotations

import asyncio
from typing import Any

from graphile_worker.values.options import WorkerOptions
from support.held_load import Holding
from support.working import PATIENCE, SCHEMA, Gate, until

TASK = "held"

FREE = f"select id from {SCHEMA}._private_jobs where id = any ($1) and locked_at is null"


class HoldingWorker:
    """Runs jobs of the task `held`: those with `{"wait": true}` end when the test lets them."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        self._jobs = holding.jobs
        self.gate = Gate()
        self.ran: list[int] = []
        """Ids of waiting jobs, each time that one was started."""
        self.runner: Any = None

    async def start(self, *, hold: float, **options: Any) -> None:
        """`hold`: for how many seconds."""
        options = {"concurrency": 20, "max_pool_size": 20, "prefetch": WorkerOptions().prefetch, **options}
        self.runner = await self._holding.start({TASK: self._run}, hold=hold, **options)

    async def _run(self, payload: Any, helpers: Any) -> None:
        if payload.get("wait"):
            self.ran.append(helpers.job.id)
            await self.gate(helpers.job.id)

    async def hold(self, count: int = 3, *, started: int | None = None) -> list[int]:
        """Let the worker hold this many waiting jobs in one transaction, of which `started` start; their ids.

        It holds only while short jobs are many, and which fetch finds the waiting ones is a matter of chance:
        if they were locked in the ordinary way, others are added.
        """
        started = count if started is None else started
        async with asyncio.timeout(PATIENCE):
            while True:
                ids = await self._holding.add(lambda: self._add(count))
                await self.gate.until_inside(started)
                await until(self._is_load_done)  # the fetches of one worker can overtake each other
                if await self.held(ids) == ids:
                    return ids
                await self.let_end()
                await self._jobs.until_gone()

    async def _is_load_done(self) -> bool:
        return not await self._holding.are_left_locked()

    async def _add(self, count: int) -> list[int]:
        return [await self._jobs.add(TASK, {"wait": True}) for _ in range(count)]

    async def held(self, ids: list[int]) -> list[int]:
        """Which of these look free, but cannot be locked."""
        free = {row["id"] for row in await self._jobs.connection.fetch(FREE, ids)}
        return sorted(free.intersection(await self._holding.row_locked(ids)))

    async def let_end(self) -> None:
        """Let every waiting job end, also those that start meanwhile."""
        while self.gate.inside or await self._waiting():
            while self.gate.inside:
                self.gate.open()
            await asyncio.sleep(0.005)

    async def _waiting(self) -> bool:
        connection = self._jobs.connection
        return bool(
            await connection.fetchval(
                f"select exists (select from {SCHEMA}._private_jobs where payload->>'wait' = 'true' "
                "and attempts < max_attempts)"
            )
        )
