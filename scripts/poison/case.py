"""One case: poison among short jobs, and workers that are restarted at once when they end."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from graphile_worker.values.options import WorkerOptions

ROOT = Path(__file__).resolve().parents[2]
TASKS = Path(__file__).with_name("tasks.py")
STATUS = 3  # of a process that poison has ended
LIMIT = 900.0  # seconds for one case
SEVERAL = 10  # held batches before an urgent job is added
MOST_RECOVERIES = WorkerOptions().recovery.max_recoveries

PREPARE = """
create table recovery (job_id bigint not null, recoveries integer not null);
create function note_recovery() returns trigger language plpgsql as $$ begin
  insert into public.recovery values (new.job_id, new.recoveries);
  return null;
end $$;
create trigger note_recovery after insert or update of recoveries on graphile_worker._private_py_recoveries
for each row when (new.recoveries > 0) execute function public.note_recovery();
"""
"""Counters are deleted with their jobs, so a trigger notes each recovery."""

ADD = """
select job.id, n = any ($2::integer[]) as is_poison from generate_series(1, $1::integer) n,
graphile_worker.add_job(case when n = any ($2) then 'poison' else 'short' end) job
"""
ADD_URGENT = "select id from graphile_worker.add_job('poison', priority => -1)"
FAILED = """
select id, last_error from graphile_worker._private_jobs where attempts >= max_attempts and locked_by is null
"""
WAITING = """
select count(*) from graphile_worker._private_jobs where id <> all ($1) and attempts < max_attempts
"""
RECOVERIES = "select job_id, max(recoveries) as charged from recovery group by job_id"


@dataclass(frozen=True)
class Case:
    """Jobs that are there before the workers start; poison is among them at these places, from 1."""

    name: str
    workers: int
    jobs: int
    places: tuple[int, ...] = ()
    adds_urgent: bool = False
    """Whether an urgent one is added while the others are being drained by held batches."""

    @property
    def most_deaths(self) -> int:
        """Those that are counted, and one for each process that may hold the job because it knew of none."""
        return (len(self.places) + self.adds_urgent) * (MOST_RECOVERIES + 1 + self.workers)


@dataclass(frozen=True)
class Result:
    """What happened in a case."""

    case: Case
    poison: tuple[int, ...]
    short: frozenset[int]
    deaths: int
    dead: frozenset[int]
    """Processes that poison has ended."""
    runs: Sequence[tuple[int, int]]
    """Jobs that ran, in order, and in which process."""
    held: Sequence[int]
    """The size of each held batch."""
    failed: dict[int, str]
    """Permanently failed jobs, and their last errors."""
    charged: dict[int, int]
    """How many recoveries count against each job."""
    given_up_after: float
    """Seconds until all poison had failed permanently."""
    done_after: float
    """Seconds until all other jobs had ended."""

    @property
    def second_runs(self) -> int:
        return len(self.runs) - len({job for job, _ in self.runs})

    @property
    def blamed(self) -> dict[int, int]:
        """Recoveries that count against jobs that kill nothing."""
        return {job: times for job, times in self.charged.items() if job in self.short}

    def faults(self) -> list[str]:
        """What should not have happened."""
        wanted = f"died {MOST_RECOVERIES + 1} times"
        errors = {job: self.failed.get(job, "") for job in self.poison}
        faults = [f"the poison job {job}: {error!r}" for job, error in errors.items() if wanted not in error]
        if innocent := sorted(self.failed.keys() & self.short):
            faults.append(f"{len(innocent)} other jobs failed permanently: {innocent[:10]}")
        if missing := self.short - self.failed.keys() - {job for job, _ in self.runs}:
            faults.append(f"{len(missing)} jobs did not run: {sorted(missing)[:10]}")
        last = dict(self.runs)
        if unexcused := [run for run in self.runs if run[1] != last[run[0]] and run[1] not in self.dead]:
            faults.append(f"{len(unexcused)} second runs without a death: {unexcused[:10]}")
        if len(self.runs) != len(set(self.runs)):
            faults.append("a job ran twice in one process")
        if self.short and not self.held:
            faults.append("nothing was held")
        if self.deaths > self.case.most_deaths:
            faults.append(f"{self.deaths} deaths; at most {self.case.most_deaths} are expected")
        return faults


class Supervisor:
    """Keeps a number of workers running."""

    def __init__(self, url: str, folder: Path, flags: Sequence[str]) -> None:
        self._command = [
            *(sys.executable, "-m", "graphile_worker", "-c", url, "--tasks", str(TASKS)),
            *("--plugin", "scripts.poison.tasks:HeldJobs", "--log-level", "error", *flags),
        ]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "GRAPHILE_"))}
        self._environment = kept | {"POISON_FOLDER": str(folder)}
        self.dead: list[int] = []

    @asynccontextmanager
    async def running(self, count: int) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._keep_running()) for _ in range(count)]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()

    async def _keep_running(self) -> None:
        while True:
            process = await asyncio.create_subprocess_exec(
                *self._command, cwd=ROOT, env=self._environment, start_new_session=True
            )
            try:
                status = await process.wait()
            finally:
                if process.returncode is None:
                    process.terminate()
                    await process.wait()
            if status != STATUS:
                raise RuntimeError(f"a worker has ended with status {status}")
            self.dead.append(process.pid)


def _lines(path: Path) -> list[list[int]]:
    return (
        [[int(word) for word in line.split()] for line in path.read_text().splitlines()]
        if path.exists()
        else []
    )


async def carry_out(case: Case, url: str, folder: Path, flags: Sequence[str] = ()) -> Result:
    """Run a case in an empty database."""
    connection: Any = await asyncpg.connect(url)
    try:
        await connection.execute(PREPARE)
        rows = await connection.fetch(ADD, case.jobs, list(case.places))
        poison = [row["id"] for row in rows if row["is_poison"]]
        short = [row["id"] for row in rows if not row["is_poison"]]
        supervisor = Supervisor(url, folder, flags)
        given_up_after = done_after = 0.0
        began = time.monotonic()
        async with asyncio.timeout(LIMIT), supervisor.running(case.workers):
            if case.adds_urgent:
                while len(_lines(folder / "held")) < SEVERAL:  # noqa: ASYNC110 - other processes do it
                    await asyncio.sleep(0.01)
                poison.append(await connection.fetchval(ADD_URGENT))
            while not (given_up_after and done_after) and len(supervisor.dead) <= case.most_deaths:
                await asyncio.sleep(0.1)
                if not await connection.fetchval(WAITING, poison):
                    done_after = done_after or time.monotonic() - began
                failed = {row["id"]: row["last_error"] for row in await connection.fetch(FAILED)}
                if failed.keys() >= set(poison):
                    given_up_after = given_up_after or time.monotonic() - began
        recoveries = await connection.fetch(RECOVERIES)
    finally:
        await connection.close()
    return Result(
        case=case,
        poison=tuple(poison),
        short=frozenset(short),
        deaths=len(supervisor.dead),
        dead=frozenset(supervisor.dead),
        runs=[(job, process) for job, process in _lines(folder / "runs")],
        held=[count for (count,) in _lines(folder / "held")],
        failed=failed,
        charged={row["job_id"]: row["charged"] for row in recoveries},
        given_up_after=given_up_after,
        done_after=done_after,
    )
