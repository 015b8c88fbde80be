"""Limits under five processes: judged by what was recorded, not by argument."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from graphile_worker import WorkerUtils
from support.worker_process import WorkerProcess, program
from support.working import PATIENCE, SCHEMA, Jobs, until

pytestmark = pytest.mark.timeout(600)

PROCESSES = 5
ADD_JOBS = f"""
select {SCHEMA}.add_jobs(array_agg(
  ('step', json_build_object('n', n), case when n % 3 = 0 then 'queue ' || n % 10 end, null, null, null,
   n % 3, null)::{SCHEMA}.job_spec
))
from generate_series(1, $1::integer) n
"""

ADD_SHORT_JOBS = f"""
select from {SCHEMA}.add_jobs(array(
  select row('step', '{{}}', null, null, null, null, null, null)::{SCHEMA}.job_spec
  from generate_series(1, $1::integer)
))
"""


class Interval(NamedTuple):
    """One run of a job."""

    job_id: int
    began: float
    ended: float
    locked_at: float


class Fleet:
    """Worker processes, each with its journal."""

    def __init__(
        self, url: str, folder: Path, concurrency: int, starts: int, burst: int, *worker: float
    ) -> None:
        """`worker`: the slots of each, the seconds that a job takes, and those of a held batch."""
        self._arguments = (concurrency, starts, burst, *worker)
        self._url, self._folder = url, folder
        self.processes: list[tuple[WorkerProcess, Path]] = []
        self._killed: dict[Path, float] = {}

    def start(self) -> None:
        path = self._folder / f"journal {len(self.processes)}"
        process = program("worker.limit_process", self._url, str(path), *self._arguments, folder=self._folder)
        self.processes.append((process, path))

    async def until_ready(self) -> None:
        for process, _ in self.processes:
            await asyncio.to_thread(process.wait_for, "ready")

    def kill(self, number: int) -> None:
        process, path = self.processes[number]
        self._killed[path] = time.monotonic()  # before: what it held is free at once
        process.send(signal.SIGKILL)

    async def stop(self) -> None:
        for process, path in self.processes:
            if path not in self._killed:
                process.send(signal.SIGTERM)
                assert await asyncio.to_thread(process.ended) == 0

    def close(self) -> None:
        for process, _ in self.processes:
            process.close()

    def intervals(self) -> list[Interval]:
        """Every run so far; one that a kill cut short ended with it."""
        return [interval for _, path in self.processes if path.exists() for interval in self._read(path)]

    def _read(self, path: Path) -> Iterator[Interval]:
        started: dict[tuple[str, str], tuple[float, float]] = {}
        for line in path.read_text().splitlines():
            kind, job_id, attempt, moment, locked_at = line.split()
            if kind == "start":
                started[job_id, attempt] = float(moment), float(locked_at)
            else:
                began, locked = started.pop((job_id, attempt))
                yield Interval(int(job_id), began, float(moment), locked)
        for (job_id, _), (began, locked) in started.items():
            yield Interval(int(job_id), began, max(began, self._killed.get(path, time.monotonic())), locked)


def most_at_once(intervals: list[Interval]) -> int:
    changes = sorted([(one.began, 1) for one in intervals] + [(one.ended, -1) for one in intervals])
    running = most = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return most


def most_in_any_window(moments: list[float], seconds: float) -> int:
    moments = sorted(moments)
    first = most = 0
    for last, moment in enumerate(moments):
        while moments[first] <= moment - seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


async def server_time(connection: Any) -> float:
    return await connection.fetchval("select date_part('epoch', clock_timestamp())")


async def test_a_limit_holds_while_workers_are_killed_and_bounds_change(
    connection: Any, database_url: str, tmp_path: Path, utils: WorkerUtils
) -> None:
    """What a killed worker had locked counts until it is recovered; then its room is used again."""
    jobs, count = Jobs(connection), 400
    fleet = Fleet(database_url, tmp_path, 6, 0, 0)
    try:
        for _ in range(PROCESSES):
            fleet.start()
        await fleet.until_ready()
        await connection.execute(ADD_JOBS, count)

        def ended() -> int:
            return len({one.job_id for one in fleet.intervals()})

        await until(lambda: ended() >= 60)
        fleet.kill(0)
        fleet.start()
        await until(lambda: ended() >= 120)
        await utils.set_limit("at once", concurrency=3)
        changed_at = await server_time(connection)
        await until(lambda: ended() >= 200)
        restored_at = await server_time(connection)
        await utils.limits.reset("at once")
        fleet.kill(1)
        await jobs.until_gone(timeout=3 * PATIENCE)
        await fleet.stop()
        intervals = fleet.intervals()
    finally:
        fleet.close()
    assert len({one.job_id for one in intervals}) == count
    assert most_at_once(intervals) <= 6
    # Jobs that were locked before the change may still run, or start, after it.
    locked_between = [one for one in intervals if changed_at < one.locked_at < restored_at]
    assert locked_between
    assert most_at_once(locked_between) <= 3
    assert await connection.fetchval(f"select count(*) from {SCHEMA}._private_jobs") == 0


async def test_a_limit_holds_for_held_batches_beside_others_and_a_kill(
    connection: Any, database_url: str, tmp_path: Path
) -> None:
    """Three workers have more slots than the limit, so few of the batches that they try find room."""
    jobs, count, limit, slots, seconds, hold = Jobs(connection), 8_000, 240, 150, 0.04, 2.0
    fleet = Fleet(database_url, tmp_path, limit, 0, 0, slots, seconds, hold)
    try:
        for _ in range(3):
            fleet.start()
        await fleet.until_ready()
        await connection.execute(ADD_SHORT_JOBS, count)
        await until(lambda: len(fleet.intervals()) >= count * 3 / 4, every=0.1)
        fleet.kill(0)
        await jobs.until_gone(timeout=3 * PATIENCE)
        await fleet.stop()
        intervals = fleet.intervals()
    finally:
        fleet.close()
    assert len({one.job_id for one in intervals}) == count
    assert limit / 4 < most_at_once(intervals) <= limit


async def test_no_window_has_more_starts_than_the_rate_and_the_burst_allow(
    connection: Any, database_url: str, tmp_path: Path
) -> None:
    """With a second limit on the same task, and a worker that is killed: tokens it took are lost."""
    jobs, count, rate, burst = Jobs(connection), 150, 40, 10
    fleet = Fleet(database_url, tmp_path, 8, rate, burst)
    try:
        for _ in range(PROCESSES):
            fleet.start()
        await fleet.until_ready()
        began = await server_time(connection)
        await connection.execute(ADD_JOBS, count)
        await until(lambda: len(fleet.intervals()) >= 40)
        fleet.kill(0)
        await jobs.until_gone(timeout=3 * PATIENCE)
        ended = await server_time(connection)
        await fleet.stop()
        intervals = fleet.intervals()
    finally:
        fleet.close()
    assert len({one.job_id for one in intervals}) == count
    assert most_at_once(intervals) <= 8
    assert ended - began >= (count - burst) / rate
    # A job is locked when its transaction began, before the server looked at its clock for the rate. On a
    # busy machine that may take a good part of a second; without the limit all jobs would start in one.
    slack = rate
    for seconds in (0.25, 1.0, 2.0):
        found = most_in_any_window([one.locked_at for one in intervals], seconds)
        assert found <= rate * seconds + burst + slack, seconds
