"""Eight scheduler processes on one database for a day of simulated time, with everything that can go wrong.

Processes are stopped, killed and started again; their clocks jump by minutes in both directions and disagree
with each other; their connections are terminated at any moment. Each run must be added exactly once, and no
scheduler may act before its own clock shows the minute.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import asyncpg
import pytest

from cron.reference import at, utc_minutes, zone_minutes
from cron.station_process import APPLICATION_NAME, serve
from graphile_worker.cron.matcher import round_down

PATTERNS = {
    "often": "*/20 * * * *",
    "odd": "7-50/13 */2 * * *",
    "nightly": "30 2 * * *",
    "noon": "0 9,12 * * 6,7",
}
CRONTAB = "\n".join(
    [f"{pattern} {task} ?fill=4w" for task, pattern in PATTERNS.items() if task != "nightly"]
    + [f"{PATTERNS['nightly']} nightly ?fill=4w&tz=Europe/Berlin", "*/30 * * * * keyed ?fill=4w&jobKey=one"]
)
START = at("2026-03-28 11:30:30")  # a Saturday; clocks change in Berlin in the night
STATIONS = 8
TERMINATE = """
    select count(pg_terminate_backend(pid)) from (
        select pid from pg_stat_activity where datname = current_database() and application_name = $1
        order by random() limit 3
    ) as victims
"""


@dataclass
class Handle:
    """A process as its parent sees it."""

    url: str
    attempts: list[tuple[datetime, datetime]] = field(default_factory=list)
    failures: int = 0
    clock: datetime = START

    def launch(self, now: datetime) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["cron.station_process"])
        self.channel, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, self.url, CRONTAB, now), daemon=True)
        self.process.start()
        theirs.close()

    def collect(self) -> None:
        if not self.channel.poll(60):
            raise TimeoutError("a scheduler process does not answer")
        self.clock, attempts, failures = self.channel.recv()
        self.attempts += attempts
        self.failures += failures

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.channel.close()

    def end(self) -> None:
        self.channel.send(("end", None))
        self.process.join(60)
        assert self.process.exitcode == 0


@contextmanager
def stations(url: str) -> Iterator[list[Handle]]:
    handles = [Handle(url) for _ in range(STATIONS)]
    try:
        for handle in handles:
            handle.launch(START)
        for handle in handles:
            handle.collect()
        yield handles
    finally:
        for handle in handles:
            if handle.process.is_alive():
                handle.kill()


class Simulation:
    """Rounds of random events, then peace until every scheduler is through."""

    def __init__(self, connection: Any, handles: list[Handle], seed: int) -> None:
        self.connection = connection
        self.handles = handles
        self.random = random.Random(seed)
        self.now = START
        self.latest_clock = START
        self.happened: Counter[str] = Counter()

    async def run(self, length: timedelta) -> None:
        while self.now < START + length:
            self.now += timedelta(minutes=self.random.randint(5, 180))
            await asyncio.gather(self.everybody_moves(), self.connections_break())

    async def everybody_moves(self) -> None:
        doomed = []
        for handle in self.handles:
            # Each clock is wrong by up to an hour.
            target = self.now + timedelta(seconds=self.random.randint(-3600, 3600))
            event = self.random.choices(["set", "restart", "kill"], [6, 2, 1])[0]
            self.happened[event] += 1
            self.happened["back"] += target < handle.clock
            handle.channel.send(("set" if event == "kill" else event, target))
            if event == "kill":
                doomed.append((handle, target))
        for handle, target in doomed:  # while they are at work
            await asyncio.sleep(self.random.uniform(0, 0.01))
            handle.kill()
            handle.launch(target)
        for handle in self.handles:
            await asyncio.to_thread(handle.collect)
            self.latest_clock = max(self.latest_clock, handle.clock)

    async def connections_break(self) -> None:
        for _ in range(self.random.randint(0, 3)):
            await asyncio.sleep(self.random.uniform(0, 0.02))
            self.happened["terminated"] += await self.connection.fetchval(TERMINATE, APPLICATION_NAME)

    async def finish(self) -> datetime:
        """Set every clock to one moment past all others; the minute up to which everything must be there."""
        end = round_down(self.latest_clock).replace(minute=0) + timedelta(hours=1)
        for handle in self.handles:
            handle.channel.send(("finish", end))
        for handle in self.handles:
            await asyncio.to_thread(handle.collect)
            handle.end()
        return end


def expected_runs(end: datetime) -> Counter[tuple[str, datetime]]:
    begin, stop = round_down(START) + timedelta(minutes=1), end + timedelta(minutes=1)
    runs: Counter[tuple[str, datetime]] = Counter()
    for task, pattern in PATTERNS.items():
        if task == "nightly":
            minutes = zone_minutes(pattern, ZoneInfo("Europe/Berlin"), begin, stop)
        else:
            minutes = utc_minutes(pattern, begin, stop)
        runs.update((task, minute) for minute in minutes)
    return runs


async def added_runs(connection: Any) -> Counter[tuple[str, datetime]]:
    rows = await connection.fetch(
        "select tasks.identifier, jobs.run_at from graphile_worker._private_jobs as jobs"
        " join graphile_worker._private_tasks as tasks on tasks.id = jobs.task_id where jobs.key is null"
    )
    return Counter((row["identifier"], row["run_at"]) for row in rows)


@pytest.mark.compat("CS4", "CS7", "CS8")
async def test_each_run_is_added_exactly_once_and_none_before_its_minute(
    database_url: str, connection: asyncpg.Connection
) -> None:
    with stations(database_url) as handles:
        simulation = Simulation(connection, handles, seed=20260327)
        await simulation.run(timedelta(days=1))
        end = await simulation.finish()

    added = await added_runs(connection)
    expected = dict.fromkeys(expected_runs(end), 1)
    assert {run: count for run, count in added.items() if run[1] <= end} == expected
    assert max(minute for _, minute in added) <= max(handle.clock for handle in handles)
    attempts = [attempt for handle in handles for attempt in handle.attempts]
    assert [attempt for attempt in attempts if attempt[0] > attempt[1]] == []
    keyed = await connection.fetch(
        "select run_at, revision from graphile_worker._private_jobs where key = 'one'"
    )
    assert [row["run_at"] for row in keyed] == [end.replace(minute=0)] or keyed[0]["run_at"] > end

    # All of it really happened, and the schedulers really competed.
    happened = simulation.happened
    assert min(happened[event] for event in ("set", "restart", "kill", "back", "terminated")) > 5, happened
    assert sum(handle.failures for handle in handles) > 0
    assert len(attempts) > 3 * len({run[1] for run in added})


async def test_the_same_days_show_duplicates_if_the_database_forgets_what_was_added(
    database_url: str, connection: asyncpg.Connection
) -> None:
    """Without the guard of the statement the simulation must fail, or it would prove nothing."""
    await connection.execute(
        """
        create function forget() returns trigger language plpgsql as $$
        begin new.last_execution := null; return new; end $$;
        create trigger forget before insert or update on graphile_worker._private_known_crontabs
        for each row execute function forget();
        """
    )
    with stations(database_url) as handles:
        simulation = Simulation(connection, handles, seed=20260327)
        await simulation.run(timedelta(hours=6))
        await simulation.finish()
    added = await added_runs(connection)
    assert max(added.values()) > 1
