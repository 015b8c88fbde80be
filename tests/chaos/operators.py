"""The operator: pauses queues, tasks and everything for a while, and notes from when to when that held."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress

import msgspec

from chaos.adders import PAUSE, TRY_FOR, WIDE_QUEUES, Load
from chaos.history import WIDE, Paused, PauseKind
from graphile_worker import make_worker_utils
from graphile_worker.client import WorkerUtils

MOST_FAILURES = 100  # to resume at the end
CLOCK = "select extract(epoch from clock_timestamp())::float8"


class Operator:
    """One client that pauses one thing at a time."""

    def __init__(self, seed: int, url: str, load: Load) -> None:
        self._dice = random.Random(f"{seed}/operator")
        self._url = url
        self._load = load
        self._open: Paused | None = None  # may be in force, even if the answer was lost
        self._is_known = False  # whether it certainly is
        self.paused: list[Paused] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Pause and resume until stopped; nothing is paused at the end."""
        late = 0
        while self._load.pauses:
            try:
                async with make_worker_utils(connection_string=self._url, max_pool_size=1) as utils:
                    await self._resume(utils)
                    while not await _is_set_within(self._dice.uniform(0.2, 0.8), stop):
                        await self._pause(utils)
                        await _is_set_within(self._dice.uniform(2.5, 5.0), stop)
                        await self._resume(utils)
                    return
            except Exception:  # the server is away: go on when it is back
                late += stop.is_set()
                if late > MOST_FAILURES:
                    raise
                await asyncio.sleep(PAUSE)

    async def _pause(self, utils: WorkerUtils) -> None:
        kind = self._dice.choice(self._load.pauses)
        self._is_known = False
        self._open = paused = Paused(kind=kind, name=self._name(kind))
        async with asyncio.timeout(TRY_FOR):
            if kind == "queue":
                await utils.queues.pause(paused.name)
            elif kind == "task":
                await utils.pause(task=paused.name)
            else:
                await utils.pause(all=True)
            began_at = await _clock(utils)
        self._open = msgspec.structs.replace(paused, began=time.monotonic(), began_at=began_at)
        self._is_known = True

    async def _resume(self, utils: WorkerUtils) -> None:
        paused = self._open
        if paused is None:
            return
        async with asyncio.timeout(TRY_FOR):
            if self._is_known:
                ended, ended_at = time.monotonic(), await _clock(utils)
                self._is_known = False
                self.paused.append(msgspec.structs.replace(paused, ended=ended, ended_at=ended_at))
            if paused.kind == "queue":
                await utils.queues.resume(paused.name)
            elif paused.kind == "task":
                await utils.resume(task=paused.name)
            else:
                await utils.resume(all=True)
        self._open = None

    def _name(self, kind: PauseKind) -> str:
        dice, load = self._dice, self._load
        if kind == "task":
            return dice.choice(("work_limited", "work_in_thread"))
        if kind == "all":
            return ""
        if load.wide and dice.random() < 0.5:
            return f"{WIDE}{dice.randrange(WIDE_QUEUES)}"
        return f"queue {dice.randrange(load.queues)}"


async def _clock(utils: WorkerUtils) -> float:
    """The server's."""
    async with utils.with_pg_client() as connection:
        seconds: float = await connection.fetchval(CLOCK)
    return seconds


async def _is_set_within(seconds: float, stop: asyncio.Event) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
    return stop.is_set()
