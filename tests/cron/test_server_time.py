"""A machine whose clock is wrong: recurring jobs are added by the server's time, and people are told."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cron.conftest import Station
from graphile_worker.cron.scheduler import ServerTime
from graphile_worker.hooks.events import CronPrematureTimer
from graphile_worker.testing.fake_clock import FakeClock

MakeStation = Callable[..., Station]
TWO_HOURS: Any = re.compile(
    r"the clock of this machine is (?:2:0|1:5).:.. (ahead of|behind) the database server's"
)
"""About: the clock of a test stands still while the server's goes on."""
FUTURE = "which is in the future"
NOT_YET = "select count(*) from graphile_worker._private_known_crontabs where last_execution > now()"


async def now_of(pool: Any) -> datetime:
    return await pool.fetchval("select clock_timestamp()")


async def wrong_by(station: MakeStation, pool: Any, crontab: str, **off: float) -> Station:
    """A scheduler on a machine whose clock is off by so much."""
    start = await now_of(pool) + timedelta(**off)
    return station(crontab, f"{start:%Y-%m-%d %H:%M:%S}", by_server_time=True)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


async def test_a_clock_that_is_ahead_claims_no_minute_that_is_yet_to_come(
    station: MakeStation, pool: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cron = await wrong_by(station, pool, "* * * * * a ?fill=1h", hours=2)
    now = await now_of(pool)
    await cron.learn("a", now - timedelta(days=1), now - timedelta(minutes=5))
    await cron.start()
    assert await pool.fetchval(NOT_YET) == 0
    assert len(await cron.jobs()) in (5, 6)  # what was really missed
    assert TWO_HOURS.search(warnings(caplog)[0])[1] == "ahead of"


async def test_a_clock_that_is_behind_adds_what_is_due(
    station: MakeStation, pool: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cron = await wrong_by(station, pool, "* * * * * a ?fill=1h", hours=-2)
    now = await now_of(pool)
    await cron.learn("a", now - timedelta(days=1), now - timedelta(minutes=5))
    await cron.start()
    assert len(await cron.jobs()) in (5, 6)
    assert TWO_HOURS.search(warnings(caplog)[0])[1] == "behind"


async def test_a_clock_that_runs_ahead_is_noticed_before_a_minute_is_claimed(
    station: MakeStation, pool: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cron = await wrong_by(station, pool, "* * * * * a")
    await cron.start()
    for _ in range(3):  # three minutes in no time
        await cron.clock.advance(60)
    assert await pool.fetchval(NOT_YET) == 0
    assert cron.events(CronPrematureTimer)
    assert any("ahead of the database server's" in line for line in warnings(caplog))


@pytest.mark.parametrize("hours", [2, -2])
async def test_a_clock_that_jumps_is_noticed_though_nothing_is_due(
    station: MakeStation, pool: Any, caplog: pytest.LogCaptureFixture, hours: int
) -> None:
    """Else it would be believed, and the first job that is due be added at the wrong time."""
    cron = await wrong_by(station, pool, "0 0 29 2 * a")
    await cron.start()
    await cron.clock.set(cron.clock.now() + timedelta(hours=hours))
    await cron.clock.advance(61)
    assert any(TWO_HOURS.search(line) for line in warnings(caplog))


def test_small_differences_are_nobodys_business(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC))
    time, here = ServerTime(clock, logging.getLogger("test")), clock.now()
    for server, took in ((1.0, 0.0), (-1.9, 0.0), (3.0, 4.0), (0.0, 60.0)):
        time.compare(here, here + timedelta(seconds=server), took)
        assert time.now() == here
    time.compare(here, here + timedelta(seconds=60), 0.2)
    assert time.now() == here + timedelta(seconds=59.9)
    time.compare(here, here + timedelta(seconds=61), 0.2)  # nearly the same
    assert time.now() == here + timedelta(seconds=59.9)
    time.compare(here, here + timedelta(seconds=0.1), 0.2)
    assert time.now() == here
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_what_another_worker_has_moved_into_the_future_is_reported_with_its_remedy(
    station: MakeStation, pool: Any, caplog: pytest.LogCaptureFixture
) -> None:
    now = await now_of(pool)
    cron = await wrong_by(station, pool, "* * * * * a\n* * * * * b")
    await cron.learn("a", now - timedelta(days=1), now + timedelta(hours=2))
    await cron.learn("b", now - timedelta(days=1), now)
    await cron.start()
    (warning,) = [line for line in warnings(caplog) if FUTURE in line]
    assert "recurring job 'a' was last added for" in warning
    remedy = re.search(r"run: (update .*)", warning)
    assert remedy is not None
    await pool.execute(remedy[1])
    assert await pool.fetchval(NOT_YET) == 0
    caplog.clear()
    await (await wrong_by(station, pool, "* * * * * a")).start()
    assert not any(FUTURE in line for line in warnings(caplog))


async def test_it_is_reported_also_while_a_worker_runs(
    station: MakeStation, pool: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cron = await wrong_by(station, pool, "* * * * * a")
    await cron.start()
    await pool.execute(
        "update graphile_worker._private_known_crontabs set last_execution = now() + interval '2 hours'"
    )
    await cron.clock.set(await now_of(pool) + timedelta(seconds=61))
    assert any(FUTURE in line for line in warnings(caplog))
