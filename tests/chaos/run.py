"""One run: a fresh database, the workers, the load and the nemesis; then quiet, and the history of it all."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from chaos.adders import MIXED, Adder, Bulk, Load, read_added
from chaos.fleet import Fleet, fleet_on
from chaos.history import FinishedRow, History, JobRow, Limits, QueueRow
from chaos.nemesis import Nemesis
from chaos.operators import Operator
from chaos.plan import Action, held_plan, plan
from chaos.roll_call import roll_call
from chaos.server import ChaosServer
from chaos.settings import DEFAULT, HOLDING, MODES, SHORT, Mode, Timing
from chaos.watcher import Watcher
from graphile_worker.recovery.held_batches import FRESH
from support.working import SCHEMA, until

ADDED_WITHIN = 300.0  # seconds, if a number of jobs is wanted
MIXED_SECONDS = 10.0  # for which jobs of all kinds are added after deaths
QUIET_WITHIN = 90.0  # seconds after the load at most; jobs that failed once wait for some of them

JOBS = (
    "select job.id, job.payload->>'token' as token, job.attempts::integer, job.max_attempts::integer, "
    "queue.queue_name as queue, job.locked_by, extract(epoch from now() - job.run_at)::float8 as due_for, "
    f"job.last_error from {SCHEMA}._private_jobs job "
    f"left join {SCHEMA}._private_job_queues queue on queue.id = job.job_queue_id order by job.id"
)
ENDS = f"select job_id, state, result #>> '{{}}' as token from {SCHEMA}._private_py_history"
QUEUES = f"select queue_name as name, locked_by from {SCHEMA}._private_job_queues order by queue_name"

Interfere = Callable[[str, asyncio.Event], Awaitable[None]]
"""Called with the URL of the database and an event that ends it: does what is not allowed."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is done."""

    seed: int
    seconds: float = 18.0
    timing: Timing = SHORT
    modes: Sequence[Mode] = MODES
    load: Load = Load()
    actions: Sequence[Action] | None = None
    """What the nemesis does, in place of what follows from the seed."""
    limits: Limits | None = None
    quiet_within: float = QUIET_WITHIN
    is_held: bool = False
    """Whether jobs are held: the plan is one for held batches, and second runs need a closer excuse."""
    least_held: int = 1
    """How many jobs must be held."""
    call_within: float = 60.0
    """Seconds in which each pool must take a job when all is quiet; 0: not asked for."""
    options: dict[str, Any] = {}
    """Further options of all workers."""

    @property
    def pause(self) -> float:
        """Mean seconds between two deeds of the nemesis: longer if it takes longer to get over one."""
        return max(1.2, self.timing.until_taken / 3)


async def run(
    setup: Setup,
    server: ChaosServer,
    *,
    say: Callable[[str], None] = lambda line: None,
    interfere: Interfere | None = None,
    keep: Callable[[Path], None] = lambda folder: None,
) -> History:
    """Do it, and say what happened; `keep` sees the folder with the logs before it is removed."""
    url = await server.fresh_database()
    changed = {"poll_interval": 0.5} | setup.timing.options
    options = ({} if setup.is_held and setup.timing is DEFAULT else changed) | setup.options
    with tempfile.TemporaryDirectory(prefix="graphile-worker-chaos-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        try:
            async with fleet_on(url, folder, setup.modes, options) as fleet:
                return await _whole(setup, server, fleet, url, say, interfere)
        finally:
            keep(folder)


async def _whole(
    setup: Setup,
    server: ChaosServer,
    fleet: Fleet,
    url: str,
    say: Callable[[str], None],
    interfere: Interfere | None,
) -> History:
    nemesis = Nemesis(url, server, fleet, say)
    enough, over = asyncio.Event(), asyncio.Event()
    intruder = asyncio.ensure_future(interfere(url, over)) if interfere is not None else None
    clients = [Adder(number, setup.seed, url, setup.load) for number in range(setup.load.adders)]
    operator = Operator(setup.seed, url, setup.load)
    adders = [asyncio.ensure_future(client.run(enough)) for client in clients]
    adders.append(asyncio.ensure_future(operator.run(enough)))
    bulk = Bulk(url, setup.load)
    adders.append(asyncio.ensure_future(bulk.run(enough)))
    watcher = Watcher(url)
    watching = asyncio.ensure_future(watcher.run(over))
    try:
        began = time.monotonic()
        if setup.is_held:
            await _carry_out_held(setup, fleet, nemesis, bulk, url)
        else:
            await nemesis.carry_out(_plan(setup, len(fleet.slots)))
        await asyncio.sleep(max(0.0, began + setup.seconds - time.monotonic()))
        if (wanted := setup.load.jobs) is not None:
            await until(
                lambda: sum(client.added for client in clients) >= wanted, timeout=ADDED_WITHIN, every=0.05
            )
        last_fault_at = max((fault.until for fault in nemesis.faults), default=began)
        enough.set()
        await asyncio.gather(*adders)
        say(f"{time.monotonic() - began:7.2f} s  the load has ended; waiting until all is quiet")
        seen = await _quiet(setup, fleet, url, last_fault_at)
        called_at = time.monotonic() if setup.call_within else None
        if called_at is not None:
            await roll_call(fleet, url, within=setup.call_within)
            seen = await _quiet(setup, fleet, url, last_fault_at)
        say(f"{time.monotonic() - began:7.2f} s  it is quiet")
    finally:
        over.set()
        for task in adders:
            task.cancel()
        await asyncio.gather(*adders, return_exceptions=True)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        if intruder is not None:
            await intruder
    added, jobs, queues, ends = seen
    return History(
        seed=setup.seed,
        workers=fleet.records(),
        added=added,
        runs=fleet.runs(),
        faults=nemesis.faults,
        jobs=jobs,
        queues=queues,
        ends=ends,
        pauses=operator.paused,
        waited=watcher.waited,
        last_fault_at=last_fault_at,
        seen_at=time.monotonic(),
        limits=setup.limits or setup.timing.limits,
        called_at=called_at,
        is_held=setup.is_held,
        least_held=setup.least_held,
    )


async def _carry_out_held(setup: Setup, fleet: Fleet, nemesis: Nemesis, bulk: Bulk, url: str) -> None:
    """The turns of the plan. After the deaths of each, other jobs are added: nothing is held for a while."""
    is_short = setup.timing is not DEFAULT
    turns: Sequence[Sequence[Action]] = (
        held_plan(setup.seed, slots=len(fleet.slots), holding=HOLDING, is_short=is_short)
        if setup.actions is None
        else [setup.actions]
    )
    for number, actions in enumerate(turns):
        if number:
            await asyncio.sleep(setup.timing.until_taken + FRESH - MIXED_SECONDS)
        bulk.is_slow = False
        await nemesis.carry_out_in_turn(actions)
        bulk.is_slow = True
        if any(action.kind == "kill" for action in actions):
            over = asyncio.Event()
            first = setup.load.adders + number * MIXED.adders
            mixed = msgspec.structs.replace(MIXED, limited=0.0) if setup.load.bulk_queues else MIXED
            clients = [Adder(first + n, setup.seed, url, mixed) for n in range(mixed.adders)]
            asyncio.get_running_loop().call_later(MIXED_SECONDS / 10 if is_short else MIXED_SECONDS, over.set)
            await asyncio.gather(*(client.run(over) for client in clients))


def _plan(setup: Setup, slots: int) -> Sequence[Action]:
    if setup.actions is not None:
        return setup.actions
    return plan(
        setup.seed,
        seconds=setup.seconds,
        slots=slots,
        pause=setup.pause,
        until_taken=setup.timing.until_taken,
    )


async def _quiet(
    setup: Setup, fleet: Fleet, url: str, last_fault_at: float
) -> tuple[list[Any], list[JobRow], list[QueueRow], list[FinishedRow]]:
    """Wait until nothing is locked and nothing waits; what is left, also if that does not come about."""
    await fleet.until_ready()
    deadline = time.monotonic() + setup.quiet_within
    connection = await asyncpg.connect(url)
    try:
        while True:
            jobs = [JobRow(**dict(row)) for row in await connection.fetch(JOBS)]
            queues = [QueueRow(**dict(row)) for row in await connection.fetch(QUEUES)]
            is_quiet = not any(job.locked_by or not job.is_out_of_attempts for job in jobs) and not any(
                queue.locked_by for queue in queues
            )
            if is_quiet or time.monotonic() > deadline:
                ends = [FinishedRow(**dict(row)) for row in await connection.fetch(ENDS)]
                return await read_added(connection), jobs, queues, ends
            await asyncio.sleep(0.1)
    finally:
        with suppress(Exception):
            await connection.close(timeout=5)
