"""A wall clock that jumps: nothing but recurring jobs may go by it."""

from __future__ import annotations

import asyncio
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import graphile_worker
from faults.scene import BRIEF, PATIENCE, Log, Ran
from graphile_worker.hooks.events import PoolEvicted, WorkerLost
from graphile_worker.testing.results import EventRecorder
from support.working import SCHEMA, Gate, Jobs, Workers, until

PACKAGE = Path(graphile_worker.__file__).parent
MAY_READ_THE_WALL_CLOCK = {
    "values/clock.py": "where it comes from",
    "values/spec.py": "an example in a message",
    "logging/alike_records.py": "the time of a log record",
    "cli/commands/schedules.py": "says what is due from now on",
    "cli/commands/history.py": "turns periods before now into times",
    "cli/commands/pause.py": "refuses times that have passed",
    "cli/support/parameters.py": "turns periods before now into times",
    "cli/dev/feed.py": "shows when something happened",
    "diagnostics/waiting_checks.py": "says how long something is paused",
    "diagnostics/explanation/facts.py": "says how long a job waits",
    "values/attempts.py": "an example in a message",
    "cron/item_jobs.py": "the time of a payload that is only checked or shown",
    "metrics/minutes.py": "where a clock begins that does not jump",
    "metrics/database_reader.py": "says when the database was last read",
    "database/statements/pauses.py": "compares it with the end of a pause",
    "database/statements/write_plan.py": "turns the time that a task asked for into a delay",
    "worker/run/outcomes.py": "turns the time that a task asked for into a delay",
    "database/statements/job_filter.py": "an example in a message",
    "contrib/django/admin.py": "the time at which jobs are to run",
    "recovery/heartbeat.py": "compares it with the server's clock, to be shown",
    "recovery/registry/pool_state.py": "compares it with the server's clock, to be shown",
    "testing/jobs.py": "the times of a made-up job",
    "testing/scratch.py": "compares it with the age of files",
}
WALL_CLOCK = re.compile(r"\b(time\.time|time\.time_ns|datetime\.now|datetime\.utcnow)\(")


class JumpingClock:
    """The machine's clock, with a wall time that jumps."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def test_jobs_run_on_while_the_clock_jumps_by_days(
    workers: Workers, jobs: Jobs, recorder: EventRecorder, ran: Ran, log: Log
) -> None:
    clock, gate = JumpingClock(), Gate()
    await jobs.add("wait")
    await workers.start(
        {"note": ran, "wait": gate}, clock=clock, events=recorder.events, concurrency=2, **BRIEF
    )
    await workers.start({"never": print}, clock=clock, events=recorder.events, **BRIEF)  # looks for the dead
    await gate.until_inside(1, timeout=PATIENCE)
    for number, days in enumerate((1, -1, 400, -4000, 0)):
        clock.ahead = timedelta(days=days)
        await jobs.add("note", {"n": number}, queue="named" if number % 2 else None)
        await ran.until(number)
        await asyncio.sleep(BRIEF["sweep_interval"])
    gate.open()
    await jobs.until_gone(timeout=PATIENCE)
    ran.assert_each_once(5)
    assert len(gate.started) == 1
    assert recorder.of(PoolEvicted, WorkerLost) == []


@pytest.mark.parametrize("hours", [2, -2])
async def test_recurring_jobs_are_added_by_the_clock_of_the_server(
    workers: Workers, jobs: Jobs, log: Log, ran: Ran, hours: int
) -> None:
    """A worker that is ahead must not claim minutes that are yet to come: all others would wait for them."""
    await jobs.connection.execute(
        f"insert into {SCHEMA}._private_known_crontabs values "
        "('note', now() - interval '1 day', date_trunc('minute', now() - interval '3 minutes'))"
    )
    clock = JumpingClock()
    clock.ahead = timedelta(hours=hours)
    crontab = "* * * * * note ?fill=1h"
    await workers.start({"note": print}, crontab=crontab, clock=clock, **BRIEF)
    way = "ahead of" if hours > 0 else "behind"
    await log.says(f"the clock of this machine is 2:00:00 {way} the database server's")

    async def is_added() -> bool:
        return await jobs.connection.fetchval(
            "select last_execution = date_trunc('minute', last_execution) and last_execution <= now() "
            f"and last_execution > now() - interval '2 minutes' from {SCHEMA}._private_known_crontabs"
        )

    await until(is_added, timeout=PATIENCE)
    await workers.start({"note": print}, crontab=crontab, **BRIEF)
    await until(is_added, timeout=PATIENCE)
    assert not any("in the future" in line for line in log.lines)


async def test_a_retry_is_due_by_the_clock_of_the_server(
    workers: Workers, jobs: Jobs, log: Log, recorder: EventRecorder
) -> None:
    clock, tries = JumpingClock(), []

    async def fail_once(payload: Any) -> None:
        tries.append(time.monotonic())
        if len(tries) == 1:
            raise RuntimeError("not yet")

    clock.ahead = timedelta(days=30)
    await workers.start({"fail_once": fail_once}, clock=clock, poll_interval=0.2, **BRIEF)
    await jobs.add("fail_once")
    await jobs.until_gone(timeout=PATIENCE)
    assert tries[1] - tries[0] > 2.0  # e to the power of one, whatever the worker's clock says


def test_no_module_measures_time_by_the_wall_clock() -> None:
    """Deadlines, leases and back-off go by clocks that never jump. The dashboard shows times to people."""
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if WALL_CLOCK.search(path.read_text()) and not path.is_relative_to(PACKAGE / "admin")
    }
    assert "values/clock.py" in found  # the search works
    assert found - MAY_READ_THE_WALL_CLOCK.keys() == set()
