"""A keyed add is never lost: many processes add to one key while others run and complete its jobs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from graphile_worker.database.sql import PLACEHOLDER

RACE = Path(__file__).with_name("race.py")
UPSTREAM_SHAPE = (
    Path(__file__).with_name("upstream_shape.sql").read_text().replace(PLACEHOLDER, "graphile_worker")
)


@dataclass(frozen=True)
class RaceResult:
    """What a history shows: how much happened, and which adds came to nothing."""

    adds: int
    runs: int
    without_row: list[int]
    """Numbers of adds that returned no row."""
    forgotten: list[int]
    """Numbers of adds after which neither they nor any later add of their key was run or left waiting."""


def judge(history: Sequence[Any], waiting: dict[str, int]) -> RaceResult:
    """Look for lost adds; `waiting` has, by key, the number of the add whose payload waits at the end."""
    place_of_add = {event["number"]: event["place"] for event in history if event["event"] == "add"}
    adds = [event for event in history if event["event"] == "add"]
    runs = [event for event in history if event["event"] == "run"]

    def served(add: Any) -> bool:
        at_end = waiting.get(add["key"])
        return (at_end is not None and place_of_add[at_end] >= add["place"]) or any(
            run["key"] == add["key"]
            and run["place"] > add["place"]
            and place_of_add[run["number"]] >= add["place"]
            for run in runs
        )

    return RaceResult(
        adds=len(adds),
        runs=len(runs),
        without_row=[add["number"] for add in adds if add["job_id"] is None],
        forgotten=[add["number"] for add in adds if not served(add)],
    )


async def race(connection: Any, url: str, *, adders: int, adds: int, runners: int, keys: int) -> RaceResult:
    """Let the processes run to the end and judge what they wrote."""
    numbers = (str(number) for number in (adders, adds, runners, keys))
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(RACE), url, *numbers, stderr=asyncio.subprocess.PIPE, start_new_session=True
    )
    try:
        async with asyncio.timeout(600):
            _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    assert process.returncode == 0, errors.decode()
    rows = await connection.fetch(
        "select key, payload from graphile_worker._private_jobs where key is not null"
    )
    waiting = {row["key"]: json.loads(row["payload"])["number"] for row in rows}
    return judge(await connection.fetch("select * from history order by place"), waiting)


async def last_served(connection: Any) -> tuple[int, int]:
    """The number of the last add, and of the add whose payload waits or else was run last."""
    last = await connection.fetchval(
        "select number from history where event = 'add' order by place desc limit 1"
    )
    waiting = await connection.fetchval(
        "select (payload ->> 'number')::bigint from graphile_worker._private_jobs where key is not null"
    )
    run = await connection.fetchval(
        "select number from history where event = 'run' order by place desc limit 1"
    )
    return last, waiting if waiting is not None else run


@pytest.mark.compat("EXT-15", "AJ7")
async def test_32_processes_adding_to_one_key_lose_nothing(connection: Any, database_url: str) -> None:
    found = await race(connection, database_url, adders=32, adds=40, runners=6, keys=1)
    assert found.adds == 32 * 40
    assert found.runs > 20
    assert found.without_row == []
    assert found.forgotten == []
    last, served = await last_served(connection)
    assert served == last


@pytest.mark.compat("EXT-15", "AJ7")
async def test_batches_of_shared_keys_lose_nothing_and_do_not_deadlock(
    connection: Any, database_url: str
) -> None:
    found = await race(connection, database_url, adders=16, adds=40, runners=6, keys=6)
    assert found.runs > 20
    assert found.without_row == []
    assert found.forgotten == []


@pytest.mark.compat("AJ7")
async def test_the_race_catches_the_shape_that_loses_adds(connection: Any, database_url: str) -> None:
    """The same race with the weak functions, which proves that the two tests above can fail."""
    await connection.execute(UPSTREAM_SHAPE)
    found = await race(connection, database_url, adders=32, adds=40, runners=6, keys=1)
    assert found.without_row


class TestJudging:
    """The judge itself, on histories short enough to check by hand."""

    @staticmethod
    def history(*events: tuple[str, int]) -> list[dict[str, Any]]:
        return [
            {"place": place, "event": event, "key": "k", "number": number, "job_id": 1}
            for place, (event, number) in enumerate(events)
        ]

    def test_an_add_is_served_by_its_own_run_or_a_later_add(self) -> None:
        assert judge(self.history(("add", 1), ("add", 2), ("run", 2)), {}).forgotten == []
        assert judge(self.history(("add", 1), ("run", 1), ("add", 2)), {"k": 2}).forgotten == []

    def test_an_add_is_not_served_by_what_ran_before_or_is_older(self) -> None:
        assert judge(self.history(("add", 1), ("run", 1), ("add", 2)), {}).forgotten == [2]
        assert judge(self.history(("add", 1), ("add", 2), ("run", 1)), {}).forgotten == [2]
        assert judge(self.history(("add", 1), ("add", 2)), {"k": 1}).forgotten == [2]

    def test_an_add_without_a_row_is_counted(self) -> None:
        events = self.history(("add", 1), ("run", 1))
        events[0]["job_id"] = None
        assert judge(events, {}).without_row == [1]
