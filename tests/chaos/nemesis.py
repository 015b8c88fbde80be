"""The nemesis: carries out a plan against the workers and the server, and notes what it did and when."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import asyncpg

from chaos.adders import LONG, SHORTEST_LONG
from chaos.fleet import PATIENCE, Fleet, Slot
from chaos.history import Fault
from chaos.journal import BEGAN, HELD, Tail
from chaos.plan import Action
from chaos.server import ChaosServer
from support.working import SCHEMA, until

LOOKS_EVERY = 0.01  # seconds
HOLD = 0.05  # seconds, of the workers
BACKENDS = (
    "select pid from pg_stat_activity where datname = current_database() and application_name = $1 "
    "order by backend_start, pid"
)


FOR_ALL = ("restart", "lock", "unlock")
LOCK = f"lock table {SCHEMA}._private_jobs in access exclusive mode"
ELSEWHERE = "a pool elsewhere"
TAKE = (
    f"update {SCHEMA}._private_jobs set locked_by = $1, locked_at = now() where id in (select id from "
    f"{SCHEMA}._private_jobs where is_available and job_queue_id is null and key is null and run_at <= now() "
    "order by id limit 20 for update skip locked)"
)
GIVE_BACK = f"select {SCHEMA}.force_unlock_workers(array[$1])"
"""As SQL, so that no worker is told of it."""
AWAY = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


class Hit(NamedTuple):
    """What a deed has done."""

    workers: list[str]
    at: float | None = None
    """When it began to matter; None: at once."""
    sessions: Sequence[int] = ()
    """The server's processes whose connections were lost."""


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

    async def carry_out_in_turn(self, actions: Sequence[Action]) -> None:
        """Each when the one before is over."""
        last = 0.0
        for action in actions:
            await asyncio.sleep(action.at - last)
            last = action.at
            await self._do(action, self._fleet.slots[action.slot])

    async def _do(self, action: Action, slot: Slot) -> None:
        deed: Any = {
            "kill": self._kill,
            "leave": self._leave,
            "stop": self._stop,
            "terminate": self._terminate,
            "restart": self._restart,
            "partition": self._partition,
            "cut": self._cut,
            "lock": self._lock,
            "unlock": self._unlock,
        }[action.kind]
        at = time.monotonic()
        whom = slot.current.name if action.kind not in FOR_ALL else "the server"
        self._say(f"{at - self._began:7.2f} s  {action} → {whom}")
        hit: Hit = await deed(action, slot)
        over = time.monotonic()
        if action.lasts:
            self._say(f"{over - self._began:7.2f} s  {action.kind} → {whom} is over")
        self.faults.append(
            Fault(
                kind=action.kind,
                at=hit.at or at,
                until=over,
                workers=hit.workers,
                detail=str(action),
                sessions=sorted(set(hit.sessions)),
            )
        )

    async def _kill(self, action: Action, slot: Slot) -> Hit:
        if action.how:
            await self._moment(action, slot)
        at = time.monotonic()
        slot.current.kill()
        return Hit([slot.current.name], at)

    async def _moment(self, action: Action, slot: Slot) -> None:
        """Wait until the worker holds a batch, or runs a job that has outlasted its batch."""
        dice = random.Random(f"{action.at}")
        tail = Tail(slot.current.journal)
        with suppress(TimeoutError):
            async with asyncio.timeout(action.within):
                while True:
                    await asyncio.sleep(LOOKS_EVERY)
                    for line in tail.read():
                        if action.how == "in hold" and line[0] == HELD:
                            return await asyncio.sleep(dice.uniform(0.0, HOLD))
                        if action.how == "after hold" and line[0] == BEGAN and _outlasts(line[2]):
                            return await asyncio.sleep(dice.uniform(3 * HOLD, SHORTEST_LONG))
        self._say(f"         {slot.current.name} did not come to hold what was meant")

    async def _leave(self, action: Action, slot: Slot) -> Hit:
        """Shut down gracefully, and be replaced."""
        process = slot.current
        process.leave()
        await until(lambda: slot.current is not process, timeout=PATIENCE, every=0.02)
        await self._fleet.until_ready()
        return Hit([process.name])

    async def _stop(self, action: Action, slot: Slot) -> Hit:
        process = slot.current
        process.send(signal.SIGSTOP)
        await asyncio.sleep(action.lasts)
        process.send(signal.SIGCONT)
        return Hit([process.name])

    async def _terminate(self, action: Action, slot: Slot) -> Hit:
        name = slot.current.name
        hit = Hit([name])
        # If the server is away just then, there is nothing to terminate.
        with suppress(*AWAY):
            connection = await asyncpg.connect(self._url, timeout=5)
            try:
                pids = [row["pid"] for row in await connection.fetch(BACKENDS, name)]
                if action.how == "one" and pids:
                    pids = [random.Random(action.at).choice(pids)]
                hit = Hit([name], time.monotonic(), pids)
                await connection.fetch(
                    "select pg_terminate_backend(pid) from unnest($1::integer[]) pid", pids
                )
            finally:
                connection.terminate()
        return hit

    async def _lock(self, action: Action, slot: Slot) -> Hit:
        """Lock the table for a while, as a change of it does; not if a worker that is stopped has it."""
        with suppress(*AWAY):
            connection = await asyncpg.connect(self._url, timeout=5)
            try:
                async with connection.transaction():
                    await connection.execute("set local lock_timeout = '300ms'")
                    await connection.execute(LOCK)
                    await asyncio.sleep(action.lasts)
            finally:
                connection.terminate()
        return Hit([])

    async def _unlock(self, action: Action, slot: Slot) -> Hit:
        """Take ready jobs as a pool of another runtime does, and return them without a word."""
        has_taken = False
        async with asyncio.timeout(PATIENCE):
            while True:
                with suppress(*AWAY):
                    connection = await asyncpg.connect(self._url, timeout=5)
                    try:
                        if not has_taken:
                            has_taken = True  # even if there is no answer
                            await connection.execute(TAKE, ELSEWHERE)
                            await asyncio.sleep(action.lasts)
                        await connection.execute(GIVE_BACK, ELSEWHERE)
                        return Hit([])
                    finally:
                        connection.terminate()
                await asyncio.sleep(LOOKS_EVERY)

    async def _restart(self, action: Action, slot: Slot) -> Hit:
        before = {slot.current.name for slot in self._fleet.slots}
        sessions = [pid for slot in self._fleet.slots for pid in slot.network.sessions]
        await self._server.restart(action.how, action.lasts)
        return Hit(sorted(before | {slot.current.name for slot in self._fleet.slots}), None, sessions)

    async def _partition(self, action: Action, slot: Slot) -> Hit:
        before = {slot.current.name}
        if action.how == "delayed":
            slot.network.delay()
        elif action.how == "torn":
            slot.network.tear(random.Random(action.at))
        else:
            slot.network.swallow(is_noticed=action.how == "noticed")
        sessions = slot.network.lost_sessions
        await asyncio.sleep(action.lasts)
        slot.network.heal()
        return Hit(sorted(before | {slot.current.name}), None, sessions)

    async def _cut(self, action: Action, slot: Slot) -> Hit:
        before = {slot.current.name}
        is_committed = action.how == "after the commit"
        cut = await slot.network.cut_batch(is_committed=is_committed, within=action.within)
        workers = sorted(before | {slot.current.name})
        if cut is None:
            self._say(f"         {slot.current.name} did not hold a batch")
            return Hit(workers)
        return Hit(workers, cut.at, [cut.pid])


def _outlasts(run: dict[str, Any]) -> bool:
    return run["held"] and run["token"].endswith(LONG)
