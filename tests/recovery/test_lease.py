"""The lease between a pool and its jobs: open while a lease lasts, and not before everything is found out."""

from __future__ import annotations

import asyncio
import threading

import pytest

from graphile_worker.recovery.lease import Lease
from graphile_worker.values.clock import uptime
from support.working import PATIENCE, until


class Lapses:
    """Counts how often the pool has to find out what it holds."""

    count = 0

    def __call__(self) -> None:
        self.count += 1


async def test_without_a_lease_it_is_open() -> None:
    lease = Lease()
    lease.renew(uptime())
    assert lease.is_open
    await lease.passed()


async def test_it_closes_when_the_lease_ends_and_opens_when_it_is_known_what_is_held() -> None:
    lapses = Lapses()
    lease = Lease(lapses)
    lease.begin(1.0, uptime() - 2.0)
    assert not lease.is_open
    passing = asyncio.ensure_future(lease.passed())
    lease.renew(uptime())
    await until(lambda: lapses.count == 1)
    assert not lease.is_open
    lease.settle(lease.epoch)
    await asyncio.wait_for(passing, PATIENCE)


async def test_a_sign_of_life_in_time_keeps_it_open_without_more_ado() -> None:
    lapses = Lapses()
    lease = Lease(lapses)
    lease.begin(60.0, uptime())
    lease.renew(uptime())
    await asyncio.sleep(0)
    assert (lease.is_open, lease.epoch, lapses.count) == (True, 0, 0)


async def test_a_sign_of_life_counts_from_when_it_was_sent() -> None:
    lease = Lease()
    lease.begin(1.0, uptime())
    lease.renew(uptime() - 5.0)
    assert lease.is_open  # an old one takes nothing away
    lease.renew(uptime() - 5.0, was_swept=True)
    lease.settle(lease.epoch)
    assert not lease.is_open


async def test_what_was_found_out_before_the_last_doubt_does_not_open_it() -> None:
    lease = Lease()
    lease.begin(60.0, uptime())
    lease.renew(uptime(), was_swept=True)
    earlier = lease.epoch
    lease.renew(uptime(), was_swept=True)
    lease.settle(earlier)
    assert not lease.is_open
    lease.settle(lease.epoch)
    assert lease.is_open


async def test_when_nobody_can_judge_the_pool_any_more_it_opens_until_somebody_can() -> None:
    lease = Lease()
    lease.begin(0.01, uptime() - 1.0)
    passing = asyncio.ensure_future(lease.passed())
    await asyncio.sleep(0)
    lease.suspend()
    await asyncio.wait_for(passing, PATIENCE)
    lease.renew(uptime() - 1.0)
    assert not lease.is_open


async def test_signs_of_life_come_from_any_thread() -> None:
    lapses = Lapses()
    lease = Lease(lapses)
    lease.begin(60.0, uptime())
    thread = threading.Thread(target=lease.renew, args=(uptime(),), kwargs={"was_swept": True})
    thread.start()
    await until(lambda: lapses.count == 1)
    thread.join()


def test_when_the_loop_is_closed_whoever_shows_signs_of_life_hears_of_it() -> None:
    async def make() -> Lease:
        return Lease()

    lease = asyncio.run(make())
    with pytest.raises(RuntimeError):
        lease.renew(uptime())
