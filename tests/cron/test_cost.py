"""A thousand recurring jobs are cheap to parse, to match and to backfill."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from cron.conftest import Station
from cron.reference import at
from graphile_worker.cron import parse_crontab
from graphile_worker.cron.due import due_between
from graphile_worker.testing.fake_clock import FakeClock

WEEK = timedelta(days=7)
LINES = [
    f'{number % 60} {number % 24} * * * task_{number % 50} ?id=item_{number}&fill=1w {{"n": {number}}}'
    for number in range(1000)
]


def test_a_thousand_lines_are_read_and_a_week_is_looked_through_at_once() -> None:
    start = time.process_time()
    items = parse_crontab("\n".join(LINES))
    due = sum(len(items) for _, items in due_between(items, at("2026-01-01"), at("2026-01-01") + WEEK))
    assert due == 7000
    # timing: a fraction of a second of the processor, and minutes if the work grew with the square. Only a
    # measure shows that; other processes do not count.
    assert time.process_time() - start < 10.0


async def test_a_thousand_items_and_a_week_to_make_up_for_take_few_transactions(pool: Any) -> None:
    station = Station(pool, parse_crontab("\n".join(LINES)), FakeClock(at("2026-01-08 12:00:30")))
    now = station.clock.now()
    await pool.executemany(
        "insert into graphile_worker._private_known_crontabs values ($1, $2, $3)",
        [(f"item_{number}", now - 2 * WEEK, now - WEEK) for number in range(1000)],
    )
    before = await pool.fetchval("select txid_current()")
    try:
        await station.start()
    finally:
        await station.scheduler.stop()
    assert await pool.fetchval("select txid_current()") - before < 100  # not one for each item or job
    count = "select count(*), count(distinct (payload->>'n', run_at)) from graphile_worker._private_jobs"
    assert tuple(await pool.fetchrow(count)) == (7000, 7000)


@pytest.mark.compat("CS2")
async def test_a_backfill_is_committed_in_parts_so_that_others_do_not_wait_long(
    pool: Any, database_url: str
) -> None:
    """Cut the connection in the middle: what was committed stays, and the rest follows once."""
    station = Station(pool, parse_crontab("* * * * * a ?fill=1d"), FakeClock(at("2026-01-08 12:00:30")))
    now = station.clock.now()
    await station.learn("a", now - WEEK, now - timedelta(days=1))
    other = await asyncpg.connect(database_url)
    await other.execute(
        """
        create sequence calls;
        create function cut() returns trigger language plpgsql as $$
        begin
            if nextval('calls') = 700 then perform pg_terminate_backend(pg_backend_pid()); end if;
            return new;
        end $$;
        create trigger cut before insert on graphile_worker._private_jobs for each row execute function cut();
        """
    )
    try:
        await station.start()
        assert await other.fetchval("select count(*) from graphile_worker._private_jobs") == 500
        await station.clock.advance(1)
        rows = await other.fetch("select run_at from graphile_worker._private_jobs order by run_at")
    finally:
        await station.scheduler.stop()
        await other.close()
    first = at("2026-01-07 12:01")
    assert [row["run_at"] for row in rows] == [first + timedelta(minutes=number) for number in range(1440)]
