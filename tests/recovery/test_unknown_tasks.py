"""Jobs that wait for a task which no running worker has: workers warn about them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from graphile_worker import Runner, make_worker_utils
from graphile_worker.recovery import sweeper
from recovery.dead import QUICK, Graveyard
from support.working import SELDOM, Gate, Jobs, Workers, until

OPTIONS = QUICK | {"sweep_interval": SELDOM}


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    """Searches every few milliseconds, and what is logged."""
    monkeypatch.setattr(sweeper, "FIRST_DELAY", 0.02)
    monkeypatch.setattr(sweeper, "LONGEST_DELAY", 0.02)
    monkeypatch.setattr(sweeper, "SHORTEST_WAIT", 0.0)
    with caplog.at_level(logging.WARNING, logger="graphile_worker"):
        yield caplog


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """One entry for each search that has ended."""
    ended: list[float] = []
    look = sweeper.UnknownTasks._look

    async def counted(self: sweeper.UnknownTasks) -> float:
        delay = await look(self)
        ended.append(delay)
        return delay

    monkeypatch.setattr(sweeper.UnknownTasks, "_look", counted)
    return ended


async def searched_again(searches: list[float], times: int = 3) -> None:
    """Wait for searches that began after this call."""
    before = len(searches)
    await until(lambda: len(searches) > before + times)


async def test_a_task_that_no_worker_has_is_named_once_with_the_one_that_may_be_meant(
    workers: Workers, jobs: Jobs, log: Any, searches: list[float]
) -> None:
    await jobs.add("sync_customer")
    await jobs.add("sync_customer")
    await workers.start({"sync_customers": Gate()}, **OPTIONS)
    await until(lambda: "wait for" in log.text)
    await searched_again(searches)
    assert [record.getMessage() for record in log.records] == [
        "2 jobs wait for the task 'sync_customer', which no running worker has; did you mean "
        "'sync_customers'? To list them: graphile-worker list --task sync_customer"
    ]


async def test_it_is_named_again_after_an_hour(
    workers: Workers, jobs: Jobs, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "WARN_AGAIN_AFTER", 0.0)
    await jobs.add("other")
    await workers.start({"work": Gate()}, **OPTIONS)
    await until(lambda: log.text.count("1 job waits for the task 'other', which no running worker has.") > 1)


async def test_a_task_of_another_worker_is_known(
    workers: Workers, jobs: Jobs, log: Any, searches: list[float], graveyard: Graveyard
) -> None:
    gate = Gate()
    await jobs.add("other")
    await workers.start({"other": gate}, concurrency=1, prefetch=0, **OPTIONS)
    await gate.until_inside(1)
    await jobs.add("other")  # waits for the other worker's only slot
    await workers.start({"work": Gate()}, **OPTIONS)
    await searched_again(searches, 6)
    assert log.text == ""
    gate.open()
    await gate.until_inside(1)
    gate.open()


async def test_the_task_of_a_dead_worker_is_not(
    workers: Workers, jobs: Jobs, log: Any, graveyard: Graveyard, connection: Any
) -> None:
    await graveyard.bury("pool-dead", lost_for=None, grace=SELDOM)
    await connection.execute("update graphile_worker._private_py_workers set tasks = '{other}'")
    await jobs.add("other")
    await workers.start({"work": Gate()}, **OPTIONS)
    await until(lambda: "1 job waits for the task 'other'" in log.text)


async def test_only_one_worker_of_a_machine_says_so(
    workers: Workers, jobs: Jobs, log: Any, searches: list[float]
) -> None:
    started: list[Runner] = [await workers.start({"work": Gate()}, **OPTIONS) for _ in range(3)]
    await jobs.add("other")
    await until(lambda: "waits for" in log.text)
    await searched_again(searches, 12)
    assert log.text.count("waits for") == 1
    await workers.stop(started[0])  # the next oldest takes over
    await until(lambda: log.text.count("waits for") == 2)
    await searched_again(searches, 8)
    assert log.text.count("waits for") == 2


async def test_workers_of_other_runtimes_may_have_it(
    workers: Workers, jobs: Jobs, log: Any, graveyard: Graveyard
) -> None:
    await graveyard.give("pool-of-node", await jobs.add("other"))
    await jobs.add("other")
    await workers.start({"work": Gate()}, **OPTIONS)
    await until(lambda: "1 job waits for the task 'other', which no running Python worker has." in log.text)


async def test_nor_is_it_sure_in_a_table_that_is_not_scanned(
    workers: Workers, jobs: Jobs, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphile_worker.recovery.registry.workers.SCANNED_PAGES", -1)
    await jobs.add("other")
    await workers.start({"work": Gate()}, **OPTIONS)
    await until(lambda: "which no running Python worker has." in log.text)


async def test_jobs_that_became_ready_just_now_may_have_a_worker_soon(
    workers: Workers, jobs: Jobs, log: Any, searches: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "SHORTEST_WAIT", SELDOM)
    await jobs.add("other")
    await workers.start({"work": Gate()}, **OPTIONS)
    await searched_again(searches)
    assert log.text == ""


async def test_searches_become_rare(
    workers: Workers, searches: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "JITTER", 0.0)
    monkeypatch.setattr(sweeper, "LONGEST_DELAY", 0.1)
    await workers.start({"work": Gate()}, **OPTIONS)
    await until(lambda: len(searches) >= 4)
    assert searches[:4] == [0.04, 0.08, 0.1, 0.1]


@pytest.mark.parametrize("what", ["task", "everything"])
async def test_nothing_is_said_about_tasks_that_are_paused(
    workers: Workers, jobs: Jobs, database_url: str, log: Any, searches: list[float], what: str
) -> None:
    async with make_worker_utils(connection_string=database_url) as utils:
        await (utils.pause(all=True) if what == "everything" else utils.pause(task="other"))
        await jobs.add("other")
        await workers.start({"work": Gate()}, **OPTIONS)
        await searched_again(searches)
        assert log.text == ""
        await (utils.resume(all=True) if what == "everything" else utils.resume(task="other"))
        await until(lambda: "1 job waits for the task 'other'" in log.text)
