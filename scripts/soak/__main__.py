"""`python -m scripts.soak --minutes 30`: mixed load on an embedded server; exit status 1 if something grows.

Two worker processes, one of them with tasks that block threads, take what adders of every kind add, while
somebody looks, cleans up, changes jobs and cuts the listeners off. At the end the load stops and everything
that is due must be done.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from graphile_worker import WorkerUtils, make_worker_utils
from graphile_worker.database.embedded import EmbeddedPostgres

from .load import Load
from .report import show_progress, show_result, write
from .result import FEWEST_SAMPLES, Sample, judge, passed
from .sampling import take_sample
from .upkeep import Upkeep
from .worker import Worker, started_worker

EVERY = 10.0  # seconds between two samples
DRAINED_WITHIN = 120.0
SETTINGS = {"fsync": "off", "autovacuum_naptime": "10s", "max_wal_size": "1GB"}
"""Vacuum looks often, so that half an hour shows what a day does with the usual minute."""
WORKERS = {"async": "scripts.soak.tasks", "threads": "scripts.soak.blocking_tasks"}
WAITING = "select count(*) from graphile_worker._private_jobs where is_available"
OVERDUE = """
select job.id, job.task_id, job.job_queue_id, job.run_at, job.attempts, queue.queue_name, queue.locked_by
from graphile_worker._private_jobs job
left join graphile_worker._private_job_queues queue on queue.id = job.job_queue_id
where job.is_available and job.run_at < now() - interval '10 seconds'
"""


class SoakError(Exception):
    """The soak could not be carried through."""


async def soak(url: str, folder: Path, *, minutes: float, rate: float, leak: int) -> bool:
    """Run it and show what was found; whether nothing grew."""
    async with AsyncExitStack() as stack:
        utils = await stack.enter_async_context(
            make_worker_utils(connection_string=f"{url}&application_name=soak")
        )
        await utils.migrate()
        workers = [
            await stack.enter_async_context(started_worker(name, url, folder, tasks=tasks, leak=leak))
            for name, tasks in WORKERS.items()
        ]
        load = Load(utils, rate=rate)
        upkeep = Upkeep(utils)
        loads = [asyncio.ensure_future(load.run()), asyncio.ensure_future(upkeep.run())]
        try:
            samples = await _watch(utils, workers, load, loads, minutes * 60)
        finally:
            for each in loads:
                each.cancel()
            await asyncio.gather(*loads, return_exceptions=True)
        left = await _drain(utils)
    comparisons = judge(samples)
    show_result(samples, comparisons, load.added)
    write(f"listeners cut off: {upkeep.listeners_cut}; jobs that nobody ran: {len(left)}")
    for job in left:
        write(f"FAILED: {job}")
    return passed(comparisons) and not left


async def _watch(
    utils: WorkerUtils,
    workers: Sequence[Worker],
    load: Load,
    loads: Sequence[asyncio.Future[None]],
    seconds: float,
) -> list[Sample]:
    """Look at everything every few seconds until the time is over."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    pids = {worker.name: worker.pid for worker in workers}
    samples: list[Sample] = []
    while (passed_seconds := loop.time() - began) < seconds:
        await asyncio.wait(
            loads, timeout=min(EVERY, seconds - passed_seconds), return_when=asyncio.FIRST_COMPLETED
        )
        for each in loads:
            if each.done():
                each.result()
        for worker in workers:
            if worker.has_ended:
                raise SoakError(f"the worker {worker.name} has ended:\n{worker.last_lines()}")
        async with utils.with_pg_client() as connection:
            samples.append(await take_sample(connection, pids, loop.time() - began))
        show_progress(samples[-1], seconds, load.added.total())
    return samples


async def _drain(utils: WorkerUtils) -> list[str]:
    """Let the workers finish; the jobs that could have run and did not."""
    async with utils.with_pg_client() as connection:
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAINED_WITHIN):
                while await connection.fetchval(WAITING):  # noqa: ASYNC110 - other processes do it
                    await asyncio.sleep(1)
        return [str(dict(row.items())) for row in await connection.fetch(OVERDUE)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=1.0, help="1 is about 400 jobs a second")
    parser.add_argument("--leak", type=int, default=0, help="bytes to leak per job, to see the result fail")
    options = parser.parse_args()
    if options.minutes * 60 / EVERY < FEWEST_SAMPLES:
        parser.error(f"--minutes: at least {FEWEST_SAMPLES * EVERY / 60:g}")
    if not Path("/proc/self/statm").exists():
        parser.error("the soak reads /proc, so it needs Linux")
    with tempfile.TemporaryDirectory(prefix="graphile-worker-soak-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # root's server runs as another user, who must get through
        with EmbeddedPostgres(folder / "postgres", settings=SETTINGS) as server:
            write(f"PostgreSQL {server.version}, {options.minutes:g} minutes")
            try:
                fine = asyncio.run(
                    soak(server.url(), folder, minutes=options.minutes, rate=options.rate, leak=options.leak)
                )
            except SoakError as error:
                write(f"FAILED: {error}")
                return 1
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
