"""The nemesis: carries out a plan against the workers and the server, and notes what it did and when."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import asyncpg

from chaos.fleet import Fleet, Slot
from chaos.history import Fault
from chaos.plan import Action
from chaos.server import ChaosServer

CUT_WITHIN = 3.0  # seconds; a worker that holds nothing just then is not cut
ANSWERS = {"before the commit": b"DELETE ", "after the commit": b"COMMIT\0"}
BACKENDS = (
    "select pid from pg_stat_activity where datname = current_database() and application_name = $1 "
    "order by backend_start, pid"
)


class Nemesis:
    """Does what the plan says; a deed that lasts does not keep the next one from beginning."""

    def __init__(self, url: str, server: ChaosServer, fleet: Fleet, say: Callable[[str], None]) -> None:
        self._url = url
        self._server = server
        self._fleet = fleet
        self._say = say
        self._began = time.monotonic()
        self.faults: list[Fault] = []

    async def carry_out(self, actions: Sequence[Action]) -> None:
        """All of them; returns when the last one is over."""
        self._began = time.monotonic()
        async with asyncio.TaskGroup() as deeds:
            for action in sorted(actions, key=lambda action: action.at):
                await asyncio.sleep(max(0.0, self._began + action.at - time.monotonic()))
                deeds.create_task(self._do(action, self._fleet.slots[action.slot]))

    async def _do(self, action: Action, slot: Slot) -> None:
        deed: Any = {
            "kill": self._kill,
            "stop": self._stop,
            "terminate": self._terminate,
            "restart": self._restart,
            "partition": self._partition,
            "cut": self._cut,
        }[action.kind]
        at = time.monotonic()
        whom = slot.current.name if action.kind != "restart" else "the server"
        self._say(f"{at - self._began:7.2f} s  {action} → {whom}")
        workers = await deed(action, slot)
        until = time.monotonic()
        if action.lasts:
            self._say(f"{until - self._began:7.2f} s  {action.kind} → {whom} is over")
        self.faults.append(Fault(kind=action.kind, at=at, until=until, workers=workers, detail=str(action)))

    async def _kill(self, action: Action, slot: Slot) -> list[str]:
        slot.current.kill()
        return [slot.current.name]

    async def _stop(self, action: Action, slot: Slot) -> list[str]:
        process = slot.current
        process.send(signal.SIGSTOP)
        await asyncio.sleep(action.lasts)
        process.send(signal.SIGCONT)
        return [process.name]

    async def _terminate(self, action: Action, slot: Slot) -> list[str]:
        name = slot.current.name
        # If the server is away just then, there is nothing to terminate.
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
            connection = await asyncpg.connect(self._url, timeout=5)
            try:
                pids = [row["pid"] for row in await connection.fetch(BACKENDS, name)]
                if action.how == "one" and pids:
                    pids = [random.Random(action.at).choice(pids)]
                await connection.fetch(
                    "select pg_terminate_backend(pid) from unnest($1::integer[]) pid", pids
                )
            finally:
                connection.terminate()
        return [name]

    async def _restart(self, action: Action, slot: Slot) -> list[str]:
        before = {slot.current.name for slot in self._fleet.slots}
        await self._server.restart(action.how, action.lasts)
        return sorted(before | {slot.current.name for slot in self._fleet.slots})

    async def _partition(self, action: Action, slot: Slot) -> list[str]:
        before = {slot.current.name}
        if action.how == "delayed":
            slot.network.delay()
        elif action.how == "torn":
            slot.network.tear(random.Random(action.at))
        else:
            slot.network.swallow(is_noticed=action.how == "noticed")
        await asyncio.sleep(action.lasts)
        slot.network.heal()
        return sorted(before | {slot.current.name})

    async def _cut(self, action: Action, slot: Slot) -> list[str]:
        before = {slot.current.name}
        await slot.network.cut_at(ANSWERS[action.how], within=CUT_WITHIN)
        return sorted(before | {slot.current.name})
