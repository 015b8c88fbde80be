"""A crontab that all three runtimes read: each minute is added once.

Minutes that have passed are added at the start (`fill`), which needs no waiting. No runtime lets a test move
the minute that comes; the test of one is in `make peers` alone.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from peers.directions import in_each, of_three, only_full
from peers.protocol import RUNTIMES, RUST, Peers
from peers.shared import Shared
from support.working import until

MINUTES = 10
FILLED = f'* * * * * tick ?id=shared&fill={MINUTES}m {{"from":"crontab"}}'
WITHOUT_PAYLOAD = f"* * * * * tick ?id=bare&fill={MINUTES}m"
KNOWN = """
    INSERT INTO graphile_worker._private_known_crontabs VALUES ($1, $2, $2)
"""
PATIENCE = 90.0  # seconds; the next minute is at most sixty away


async def know(shared: Shared, identifier: str) -> datetime:
    """Let an item have run last long ago."""
    since = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(hours=2)
    await shared.connection.execute(KNOWN, identifier, since)
    return since


def minute_of(payload: Any) -> datetime:
    return datetime.fromisoformat(payload["_cron"]["ts"]).replace(second=0, microsecond=0)


@of_three("{} fills first", "then {}", "then {}")
async def test_minutes_are_filled_once(peers: Peers, shared: Shared, direction: tuple[str, str, str]) -> None:
    await know(shared, "shared")
    for runtime in direction:
        await peers.working(runtime, crontab=FILLED)
    await shared.until_runs(MINUTES - 1)
    await shared.until_gone()
    minutes = [minute_of(run.payload) for run in await shared.runs()]
    assert len(set(minutes)) == len(minutes)


async def test_minutes_are_filled_once_by_all_at_the_same_time(peers: Peers, shared: Shared) -> None:
    await know(shared, "shared")
    all_of_them = [await peers.start(runtime) for runtime in RUNTIMES]
    await asyncio.gather(*(peer.work(crontab=FILLED) for peer in all_of_them))
    await shared.until_runs(MINUTES - 1)
    await shared.until_gone()
    minutes = sorted(minute_of(run.payload) for run in await shared.runs())
    assert len(set(minutes)) == len(minutes)
    assert minutes[-1] - minutes[0] == timedelta(minutes=len(minutes) - 1), "none is missing"


@in_each
async def test_a_line_without_a_payload(peers: Peers, shared: Shared, runtime: str) -> None:
    """Rust adds JSON null, the others an object with the time."""
    await know(shared, "bare")
    async with peers.worker(runtime, crontab=WITHOUT_PAYLOAD):
        await shared.until_runs(MINUTES - 1)
    payloads = [run.payload for run in await shared.runs()]
    if runtime == RUST:
        assert payloads == [None] * len(payloads)
    else:
        assert all(payload["_cron"]["backfilled"] for payload in payloads)


@in_each
async def test_json_null_as_payload(peers: Peers, shared: Shared, runtime: str) -> None:
    await shared.connection.execute("SELECT graphile_worker.add_job('tick', 'null')")
    async with peers.worker(runtime):
        await shared.until_gone()
    assert [run.payload for run in await shared.runs()] == [None]


@only_full
async def test_the_coming_minute_is_added_once(peers: Peers, shared: Shared) -> None:
    """Counted when all of them have stopped, so that none can add it once more."""
    crontab = '* * * * * tick ?id=shared {"from":"crontab"}'
    workers = [await peers.working(runtime, crontab=crontab) for runtime in RUNTIMES]
    await until(
        lambda: shared.connection.fetchval("SELECT EXISTS (SELECT FROM public.peer_runs)"), timeout=PATIENCE
    )
    for worker in workers:
        await worker.stop()
    minutes = [minute_of(run.payload) for run in await shared.runs()]
    assert len(set(minutes)) == len(minutes)
