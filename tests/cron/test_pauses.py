"""A paused recurring job is skipped, and its minute counts as dealt with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from graphile_worker import make_worker_utils
from graphile_worker.database.statements.schedules import CronMinute, schedule_cron_jobs
from graphile_worker.values.schema_name import SchemaName
from graphile_worker.values.spec import CronJob

MINUTE = datetime(2030, 1, 1, 4, tzinfo=UTC)
RUNS = "select job_ids from graphile_worker._private_py_schedule_runs where identifier = 'nightly'"
JOBS = "select count(*) from graphile_worker._private_jobs"


async def schedule(connection: Any, minute: datetime) -> None:
    jobs = [CronJob("tidy", {}, identifier="nightly", run_at=minute), CronJob("tidy", {}, identifier="other")]
    await schedule_cron_jobs(connection, SchemaName(), [CronMinute(minute, jobs)], is_registered=True)


async def test_a_paused_item_is_skipped_and_not_made_up_for(database_url: str, connection: Any) -> None:
    async with make_worker_utils(connection_string=database_url) as utils:
        await utils.schedules.pause("nightly", until=timedelta(hours=1))
        await schedule(connection, MINUTE)
        assert await connection.fetchval(JOBS) == 1  # of the other item
        assert await utils.schedules.resume("nightly")
        await schedule(connection, MINUTE)  # another worker, or a backfill
        assert await connection.fetchval(JOBS) == 1
        await schedule(connection, MINUTE + timedelta(minutes=1))
        assert await connection.fetchval(JOBS) == 3
        (noted,) = await connection.fetchval(RUNS)
        assert (await utils.jobs.get(noted)).run_at == MINUTE + timedelta(minutes=1)  # type: ignore[union-attr]
        for number in range(2, 30):
            await schedule(connection, MINUTE + timedelta(minutes=number))
        assert len(await connection.fetchval(RUNS)) == 20
