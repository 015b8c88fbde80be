"""remove_job, complete_jobs, permanently_fail_jobs, reschedule_jobs, force_unlock_workers and the view."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from sql_functions.jobs import (
    FAILED,
    LOCKED,
    STALE,
    add_job,
    all_jobs,
    job_by_id,
    payload_of,
    selection_of_jobs,
    set_job,
)

LATER = datetime(2200, 1, 1, tzinfo=UTC)


async def by_name(connection: Any, function: str, ids: dict[str, int], *arguments: Any) -> set[str]:
    """Call a function with all jobs but the untouched one; return the names of the jobs it returned."""
    given = [job_id for name, job_id in ids.items() if name != "untouched"]
    more = "".join(f", {argument}" for argument in arguments)
    rows = await connection.fetch(f"select * from graphile_worker.{function}($1{more})", given)
    return {name for name, job_id in ids.items() if job_id in {row["id"] for row in rows}}


class TestRemoving:
    @pytest.mark.compat("RJ1")
    async def test_a_null_key_removes_nothing(self, connection: Any) -> None:
        await add_job(connection, "a")
        assert await connection.fetchval("select graphile_worker.remove_job(null) is null")
        assert len(await all_jobs(connection)) == 1

    @pytest.mark.compat("RJ2")
    @pytest.mark.parametrize("state", [None, STALE, FAILED], ids=["waiting", "stale", "failed"])
    async def test_a_job_that_nobody_runs_is_deleted(
        self, connection: Any, state: dict[str, str] | None
    ) -> None:
        job = await add_job(connection, "a", job_key="k", queue_name="q")
        if state:
            await set_job(connection, job["id"], **state)
        expected = await job_by_id(connection, job["id"])
        assert await connection.fetchrow("select * from graphile_worker.remove_job('k')") == expected
        assert await all_jobs(connection) == []

    @pytest.mark.compat("RJ3")
    async def test_a_running_job_loses_its_key_and_its_retries(self, connection: Any) -> None:
        job = await add_job(connection, "a", job_key="k")
        await set_job(connection, job["id"], **LOCKED, updated_at="now() - interval '1 day'")
        before = dict(await job_by_id(connection, job["id"]))
        removed = dict(await connection.fetchrow("select * from graphile_worker.remove_job(job_key => 'k')"))
        assert removed == dict(await job_by_id(connection, job["id"]))
        assert removed.pop("updated_at") > before.pop("updated_at")
        assert removed == before | {"key": None, "attempts": 25}

    @pytest.mark.compat("RJ4", "EXT-7")
    async def test_a_missing_key_gives_one_row_of_nulls(self, connection: Any) -> None:
        rows = await connection.fetch("select * from graphile_worker.remove_job('missing')")
        assert [set(row.values()) for row in rows] == [{None}]
        assert len(rows[0]) == 17


class TestCompleting:
    @pytest.mark.compat("CJ1")
    async def test_all_but_running_jobs_are_deleted_and_returned(self, connection: Any) -> None:
        ids = await selection_of_jobs(connection)
        left = [await job_by_id(connection, ids[name]) for name in ("locked", "untouched")]
        assert await by_name(connection, "complete_jobs", ids) == {"failed", "regular1", "regular2"}
        assert await all_jobs(connection) == left

    @pytest.mark.compat("CJ1")
    async def test_a_lock_counts_until_four_hours_have_passed(self, connection: Any) -> None:
        ids = [(await add_job(connection, "a"))["id"] for _ in range(2)]
        async with connection.transaction():
            # Inside one transaction now() stands still, so "exactly four hours" means something.
            await set_job(connection, ids[0], locked_at="now() - interval '4 hours'", locked_by="'w'")
            await set_job(
                connection, ids[1], locked_at="now() - interval '4 hours 1 microsecond'", locked_by="'w'"
            )
            rows = await connection.fetch("select * from graphile_worker.complete_jobs($1)", ids)
        assert [row["id"] for row in rows] == ids[1:]

    @pytest.mark.compat("CJ1", "PF1", "RS1")
    @pytest.mark.parametrize("function", ["complete_jobs", "permanently_fail_jobs", "reschedule_jobs"])
    async def test_unknown_ids_and_null_do_nothing(self, connection: Any, function: str) -> None:
        await add_job(connection, "a")
        for argument in ("null", "'{}'", "array[999, null]::bigint[]"):
            assert await connection.fetch(f"select * from graphile_worker.{function}({argument})") == []
        assert len(await all_jobs(connection)) == 1


class TestFailing:
    @pytest.mark.compat("PF1")
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [((), "Manually marked as failed"), (("'TESTING!'",), "TESTING!"), (("''",), "")],
    )
    async def test_attempts_are_used_up_and_the_message_is_kept(
        self, connection: Any, arguments: tuple[str, ...], message: str
    ) -> None:
        ids = await selection_of_jobs(connection)
        before = {name: await job_by_id(connection, job_id) for name, job_id in ids.items()}
        failed = await by_name(connection, "permanently_fail_jobs", ids, *arguments)
        assert failed == {"failed", "regular1", "regular2"}
        for name, job_id in ids.items():
            job = await job_by_id(connection, job_id)
            if name not in failed:
                assert job == before[name]
                continue
            assert (job["last_error"], job["attempts"]) == (message, job["max_attempts"])
            assert job["updated_at"] > before[name]["updated_at"]
            assert job["run_at"] == before[name]["run_at"]

    @pytest.mark.compat("PF1")
    async def test_a_stale_lock_and_the_key_stay(self, connection: Any) -> None:
        job = await add_job(connection, "a", job_key="k")
        await set_job(connection, job["id"], **STALE)
        rows = await connection.fetch(
            "select * from graphile_worker.permanently_fail_jobs(array[$1::bigint])", job["id"]
        )
        assert [(row["locked_by"], row["key"]) for row in rows] == [("other", "k")]


class TestRescheduling:
    @pytest.mark.compat("RS1")
    async def test_given_values_are_written_and_others_stay(self, connection: Any) -> None:
        ids = await selection_of_jobs(connection)
        before = {name: await job_by_id(connection, job_id) for name, job_id in ids.items()}
        changed = await by_name(
            connection, "reschedule_jobs", ids, "run_at => '2200-01-01Z'", "attempts => 1"
        )
        assert changed == {"failed", "regular1", "regular2"}
        for name, job_id in ids.items():
            job, old = dict(await job_by_id(connection, job_id)), dict(before[name])
            if name in changed:
                assert job.pop("updated_at") > old.pop("updated_at")
                old |= {"run_at": LATER, "attempts": 1, "is_available": True}
            assert job == old

    @pytest.mark.compat("RS1")
    async def test_zero_is_a_value(self, connection: Any) -> None:
        job = await add_job(connection, "a", priority=5, payload="[1]", flags=["f"], job_key="k")
        await set_job(connection, job["id"], attempts="3")
        row = await connection.fetchrow(
            "select * from graphile_worker.reschedule_jobs(array[$1::bigint], priority => 0, attempts => 0)",
            job["id"],
        )
        assert (row["priority"], row["attempts"], payload_of(row), row["key"]) == (0, 0, [1], "k")
        assert row["run_at"] == job["run_at"]

    @pytest.mark.compat("RS2")
    async def test_zero_max_attempts_is_refused(self, connection: Any) -> None:
        ids = await selection_of_jobs(connection)
        before = await all_jobs(connection)
        with pytest.raises(asyncpg.CheckViolationError) as refusal:
            await by_name(connection, "reschedule_jobs", ids, "max_attempts => 0")
        assert refusal.value.constraint_name == "jobs_max_attempts_check"
        assert await all_jobs(connection) == before

    @pytest.mark.compat("RS1")
    async def test_numbers_beyond_smallint_are_refused(self, connection: Any) -> None:
        ids = await selection_of_jobs(connection)
        for argument in ("priority", "attempts", "max_attempts"):
            with pytest.raises(asyncpg.NumericValueOutOfRangeError):
                await by_name(connection, "reschedule_jobs", ids, f"{argument} => 40000")

    @pytest.mark.compat("RS2")
    async def test_attempts_decide_whether_a_job_can_run(self, connection: Any) -> None:
        job = await add_job(connection, "a")
        for attempts, available in ((25, False), (0, True)):
            row = await connection.fetchrow(
                "select * from graphile_worker.reschedule_jobs(array[$1::bigint], attempts => $2)",
                job["id"],
                attempts,
            )
            assert row["is_available"] is available


class TestUnlocking:
    @pytest.mark.compat("FU1")
    async def test_only_locks_of_the_given_pools_are_taken_off(self, connection: Any) -> None:
        for pool in ("pool-1", "pool-2", "pool-3", None):
            for queue in (None, f"queue of {pool}"):
                job = await add_job(connection, "a", queue_name=queue)
                if pool:
                    await set_job(
                        connection, job["id"], locked_at="now()", locked_by=f"'{pool}'", attempts="3"
                    )
        await connection.execute(
            "update graphile_worker._private_job_queues "
            "set locked_at = now(), locked_by = split_part(queue_name, ' ', 3) "
            "where queue_name like '%pool-%'"
        )
        before = {job["id"]: job for job in await all_jobs(connection)}
        await connection.execute(
            "select graphile_worker.force_unlock_workers(array['pool-2', 'pool-3', 'unknown'])"
        )
        for job in await all_jobs(connection):
            old = before[job["id"]]
            if old["locked_by"] in ("pool-2", "pool-3"):
                unlocked = {"locked_at": None, "locked_by": None, "is_available": True}
                assert dict(job) == dict(old) | unlocked
            else:
                assert job == old
        queues = await connection.fetch(
            "select * from graphile_worker._private_job_queues where locked_at is not null"
        )
        assert [(row["queue_name"], row["locked_by"]) for row in queues] == [("queue of pool-1", "pool-1")]

    @pytest.mark.compat("FU1")
    async def test_null_unlocks_nothing(self, connection: Any) -> None:
        job = await add_job(connection, "a")
        await set_job(connection, job["id"], **LOCKED)
        await connection.execute("select graphile_worker.force_unlock_workers(null)")
        assert (await job_by_id(connection, job["id"]))["locked_by"] == "other"


class TestTheView:
    @pytest.mark.compat("VIEW-1")
    async def test_it_shows_every_job_without_its_private_columns(self, connection: Any) -> None:
        await selection_of_jobs(connection)
        await add_job(connection, "b", queue_name="q", job_key="k", flags=["f"])
        shown = await connection.fetch("select * from graphile_worker.jobs order by id")
        jobs = await all_jobs(connection)
        assert len(shown) == len(jobs) == 6
        for row, job in zip(shown, jobs, strict=True):
            expected = dict(job)
            for private in ("payload", "is_available", "job_queue_id", "task_id"):
                del expected[private]
            queued = job["job_queue_id"] is not None
            expected |= {"queue_name": "q" if queued else None, "task_identifier": "b" if queued else "job3"}
            assert dict(row) == expected

    async def test_a_job_whose_task_is_gone_is_not_shown(self, connection: Any) -> None:
        await add_job(connection, "a")
        await connection.execute("delete from graphile_worker._private_tasks")
        assert await connection.fetch("select * from graphile_worker.jobs") == []
