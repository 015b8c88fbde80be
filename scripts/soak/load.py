"""The load: adders of every kind, each at a rate of its own, until they are cancelled.

About 400 jobs a second in all at the usual rate, so that a machine with two cores is not fully busy.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random

from graphile_worker import JobSpec, WorkerUtils
from graphile_worker.values.spec import JobKeyMode

TASK_NAMES = ("blocking", "flaky", "follow", "gathered", "quick", "slow", "tick")
KEYS = 200
QUEUES = 20
MODES: tuple[JobKeyMode, ...] = ("replace", "preserve_run_at", "unsafe_dedupe")

Add = Callable[[], Awaitable[int]]
"""Adds some jobs once; how many."""


class Load:
    """Adds jobs through one client."""

    def __init__(self, utils: WorkerUtils, *, rate: float = 1.0, seed: int = 1) -> None:
        self._utils = utils
        self._rate = rate
        self._chance = Random(seed)  # noqa: S311 - nothing secret
        self._numbers = itertools.count()
        self.added: Counter[str] = Counter()

    async def run(self) -> None:
        """Every adder at its own pace; ends by cancellation or by the first error."""
        async with asyncio.TaskGroup() as group:
            for add, per_second in self._adders().items():
                group.create_task(self._repeat(add, 1 / (per_second * self._rate)))

    def _adders(self) -> dict[Add, float]:
        """Each adder and how often it is called in a second."""
        return {
            self.one: 80,
            self.many: 1,
            self.keyed: 40,
            self.merged: 20,
            self.queued: 40,
            self.short_queue: 0.5,
            self.failing: 8,
            self.delayed: 30,
            self.in_a_transaction: 5,
            self.blocking: 20,
            self.large: 1,
        }

    async def _repeat(self, add: Add, pause: float) -> None:
        """Call at a steady pace; what could not be kept up with is left out, not made up for."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            self.added[add.__name__] += await add()
            due = max(due + pause, loop.time() - 1)
            await asyncio.sleep(max(0.0, due - loop.time()))

    def _mail(self) -> dict[str, object]:
        return {"to": "someone@example.com", "number": next(self._numbers)}

    def _soon(self, longest: float) -> timedelta:
        return timedelta(seconds=self._chance.uniform(0, longest))

    # -- the adders ----------------------------------------------------------------------------------------

    async def one(self) -> int:
        await self._utils.add_job("quick", self._mail(), priority=self._chance.randint(-2, 2))
        return 1

    async def many(self) -> int:
        specs = [JobSpec("quick", self._mail()) for _ in range(100)]
        specs += [JobSpec("slow", {"n": n}, flags=["bulk"]) for n in range(30)]
        return len(await self._utils.add_jobs(specs))

    async def keyed(self) -> int:
        key = f"key-{self._chance.randrange(KEYS)}"
        if self._chance.random() < 0.1:
            await self._utils.remove_job(key)
        mode = self._chance.choice(MODES)
        await self._utils.add_job("quick", self._mail(), job_key=key, job_key_mode=mode, run_at=self._soon(5))
        return 1

    async def merged(self) -> int:
        key = f"batch-{self._chance.randrange(5)}"
        await self._utils.add_job("gathered", [self._mail()], job_key=key, run_at=self._soon(2))
        return 1

    async def queued(self) -> int:
        task = self._chance.choice(("quick", "slow", "follow"))
        await self._utils.add_job(task, self._mail(), queue_name=f"queue-{self._chance.randrange(QUEUES)}")
        return 1

    async def short_queue(self) -> int:
        """A queue that nobody needs any more when its only job is done."""
        await self._utils.add_job("quick", self._mail(), queue_name=f"short-{next(self._numbers)}")
        return 1

    async def failing(self) -> int:
        await self._utils.add_job("flaky", {"hopeless": self._chance.random() < 0.2}, max_attempts=2)
        return 1

    async def delayed(self) -> int:
        await self._utils.add_job("quick", self._mail(), run_at=self._soon(30))
        return 1

    async def in_a_transaction(self) -> int:
        """Half of them are rolled back."""
        is_kept = self._chance.random() < 0.5
        async with self._utils.with_pg_client() as connection:
            transaction = connection.transaction()
            await transaction.start()
            await self._utils.add_job("quick", self._mail(), connection=connection)
            await (transaction.commit() if is_kept else transaction.rollback())
        return int(is_kept)

    async def blocking(self) -> int:
        await self._utils.add_job("blocking", self._mail())
        return 1

    async def large(self) -> int:
        await self._utils.add_job("slow", {"text": "x" * self._chance.randrange(200_000)})
        return 1
