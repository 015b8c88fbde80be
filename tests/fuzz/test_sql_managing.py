"""The SQL functions that manage jobs, with arbitrary arguments: only jobs that nobody runs are changed."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.cases import fuzzed, tried
from fuzz.desk import Desk
from fuzz.population import KEYS, Population, look, settle
from fuzz.sql_specs import BAD_TIME, CHECK, NOT_TEXT, RANGE, TIMES, is_good_time
from fuzz.values import ANY_TEXT, WILD_NUMBERS, names
from support.working import SCHEMA

IDS = st.none() | st.lists(st.none() | st.integers(1, 16) | st.integers(-(2**63), 2**63 - 1), max_size=6)
NUMBER = st.none() | WILD_NUMBERS
COMPLETE = f"select id from {SCHEMA}.complete_jobs($1)"
FAIL = f"select id from {SCHEMA}.permanently_fail_jobs($1, $2)"
RESCHEDULE = f"""
select id, run_at is not distinct from $2::text::timestamptz as is_on_time from {SCHEMA}.reschedule_jobs(
  $1, $2::text::timestamptz, $3::text::integer, $4::text::integer, $5::text::integer
)
"""


@pytest.fixture(scope="module")
def population(desk: Desk) -> Population:
    return desk.run(settle(desk.connection))


def has_nul(*texts: str | None) -> bool:
    return any("\0" in (text or "") for text in texts)


@fuzzed(0.1)
@given(IDS)
def test_completing_deletes_the_jobs_that_nobody_runs(
    desk: Desk, population: Population, ids: list[int | None] | None
) -> None:
    tried["SQL functions"] += 1

    async def case() -> None:
        async with desk.undone() as connection:
            rows = await connection.fetch(COMPLETE, ids)
            expected = population.free & set(ids or ())
            assert {row["id"] for row in rows} == expected
            after = await look(connection)
            assert after.jobs == {key: job for key, job in population.jobs.items() if key not in expected}
            assert after.queues == population.queues

    desk.run(case())


@fuzzed(0.1)
@example([1, 1, None], "")
@given(IDS, st.none() | ANY_TEXT)
def test_failing_uses_up_the_attempts_of_jobs_that_nobody_runs(
    desk: Desk, population: Population, ids: list[int | None] | None, message: str | None
) -> None:
    tried["SQL functions"] += 1

    async def case() -> None:
        async with desk.undone() as connection:
            rows, refusal = await desk.attempt(connection.fetch(FAIL, ids, message))
            if rows is None:
                assert (refusal, has_nul(message)) == (NOT_TEXT, True)
                return
            expected = population.free & set(ids or ())
            assert {row["id"] for row in rows} == expected
            after = await look(connection)
            for job_id, before in population.jobs.items():
                job = after.jobs[job_id]
                wanted = dict(before)
                if job_id in expected:
                    wanted["last_error"] = "Manually marked as failed" if message is None else message
                    wanted |= {"attempts": job["max_attempts"], "is_available": False}
                    wanted["updated_at"] = job["updated_at"]
                assert dict(job) == wanted

    desk.run(case())


@fuzzed(0.3)
@example([3], "infinity", None, 0, 1)
@example([1], None, 0, None, 0)
@example([4], None, None, -32768, None)
@given(IDS, TIMES, NUMBER, NUMBER, NUMBER)
def test_rescheduling_changes_what_is_given_and_nothing_else(
    desk: Desk,
    population: Population,
    ids: list[int | None] | None,
    run_at: str | None,
    priority: int | None,
    attempts: int | None,
    max_attempts: int | None,
) -> None:
    tried["SQL functions"] += 1
    numbers = {"priority": priority, "attempts": attempts, "max_attempts": max_attempts}

    async def case() -> None:
        expected = population.free & set(ids or ())
        must, may = _faults(numbers, is_idle=not expected)
        if not await is_good_time(desk, run_at):
            must |= BAD_TIME
        if has_nul(run_at):
            must = {NOT_TEXT}
        texts = (None if number is None else str(number) for number in numbers.values())
        async with desk.undone() as connection:
            rows, refusal = await desk.attempt(connection.fetch(RESCHEDULE, ids, run_at, *texts))
            if rows is None:
                assert refusal in must | may
                return
            assert not must, f"it was accepted, though it should be refused with {must}"
            assert {row["id"] for row in rows} == expected
            on_time = {row["id"] for row in rows if row["is_on_time"]}
            after = await look(connection)
            for job_id, before in population.jobs.items():
                job = after.jobs[job_id]
                wanted = dict(before)
                if job_id in expected:
                    wanted |= {name: number for name, number in numbers.items() if number is not None}
                    wanted |= {name: job[name] for name in ("updated_at", "is_available")}
                    if run_at is not None:
                        assert job_id in on_time
                        wanted["run_at"] = job["run_at"]
                assert dict(job) == wanted

    desk.run(case())


def _faults(numbers: dict[str, int | None], *, is_idle: bool) -> tuple[set[str], set[str]]:
    """What must be complained about, and what may be: a value for no job at all need not be looked at."""
    must: set[str] = set()
    may: set[str] = set()
    for name, number in numbers.items():
        if number is None:
            continue
        if not -(2**31) <= number < 2**31:
            must.add(RANGE)
        elif not -32768 <= number <= 32767:
            (may if is_idle else must).add(RANGE)
        elif name == "max_attempts" and number < 1:
            (may if is_idle else must).add(CHECK)
    return must, may


@fuzzed(0.1)
@given(names(512) | st.sampled_from(KEYS) | st.none())
def test_removing_deletes_a_job_that_nobody_runs_and_cuts_a_running_one_off(
    desk: Desk, population: Population, key: str | None
) -> None:
    tried["SQL functions"] += 1

    async def case() -> None:
        async with desk.undone() as connection:
            row, refusal = await desk.attempt(
                connection.fetchrow(f"select id from {SCHEMA}.remove_job($1)", key)
            )
            if row is None:
                assert (refusal, has_nul(key)) == (NOT_TEXT, True)
                return
            before = population.by_key.get(key or "")
            after = await look(connection)
            wanted = dict(population.jobs)
            assert row["id"] == (None if before is None else before["id"])
            if before is not None and before["id"] in population.free:
                del wanted[before["id"]]
            elif before is not None:
                left = after.jobs[before["id"]]
                assert (left["key"], left["attempts"]) == (None, left["max_attempts"])
                assert (left["locked_by"], left["json"]) == (before["locked_by"], before["json"])
                wanted[before["id"]] = left
            assert after.jobs == wanted

    desk.run(case())


@fuzzed(0.1)
@given(st.none() | st.lists(st.none() | ANY_TEXT | st.sampled_from(["pool-1", "pool-2"]), max_size=4))
def test_forcing_unlocks_what_these_pools_hold_and_nothing_else(
    desk: Desk, population: Population, pools: list[str | None] | None
) -> None:
    tried["SQL functions"] += 1
    named = {pool for pool in pools or () if pool is not None}

    async def case() -> None:
        async with desk.undone() as connection:
            _, refusal = await desk.attempt(
                connection.execute(f"select {SCHEMA}.force_unlock_workers($1)", pools)
            )
            if refusal is not None:
                assert (refusal, has_nul(*named)) == (NOT_TEXT, True)
                return
            after = await look(connection)
            for rows, rows_after in ((population.jobs, after.jobs), (population.queues, after.queues)):
                for key, before in rows.items():
                    lock = (before["locked_at"], before["locked_by"])
                    wanted = (None, None) if before["locked_by"] in named else lock
                    assert (rows_after[key]["locked_at"], rows_after[key]["locked_by"]) == wanted

    desk.run(case())
