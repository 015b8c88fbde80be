"""`graphile-worker schedules`, `stack` and `stop`, and pauses of schedules and workers."""

from __future__ import annotations

from typing import Any

import pytest

from graphile_worker.database.statements.schedules import ScheduleDefinition, register_schedules
from graphile_worker.values.schema_name import SchemaName
from recovery.dead import Graveyard
from support.command_line import Call
from support.server import DatabaseServer

NIGHTLY = ScheduleDefinition(
    identifier="nightly",
    task_identifier="tidy",
    pattern="0 4 * * 1-5",
    zone="Europe/Berlin",
    payload='{"depth":3}',
    options={"max_attempts": 2},
    source="crontab:3",
)


@pytest.fixture
def pool(server: DatabaseServer, database_url: str) -> str:
    """The id of a worker that has registered a recurring job."""

    async def register(connection: Any) -> None:
        await Graveyard(connection).bury("pool-a")
        await register_schedules(connection, SchemaName(), "pool-a", [NIGHTLY])

    server.run(database_url, register)
    return "pool-a"


def test_schedules_are_listed_run_and_paused(gw: Call, pool: str) -> None:
    line = gw("schedules").check().out.splitlines()[1]
    assert line.startswith("nightly")
    assert "weekdays at 04:00" in line
    assert "Europe/Berlin" in line
    (listed,) = gw("schedules", "--json").json
    assert listed["workers"][0]["worker_id"] == pool
    assert listed["workers"][0]["payload"] == {"depth": 3}

    assert (
        gw("pause", "--schedule", "nightly", "--for", "1h", "--reason", "month end")
        .check()
        .out.startswith("Paused schedule nightly until")
    )
    assert gw("pause", "--json").json[0]["schedule"] == "nightly"
    added = gw("schedules", "--run", "nightly", "--json").check().json
    job = gw("show", added["job_id"], "--json").json
    assert job["max_attempts"] == 2
    assert job["payload"]["_cron"]["manual"] is True
    assert gw("resume", "--schedule", "nightly").check().out == "Resumed schedule nightly.\n"
    assert gw("schedules", "--run", "other").status == 1


def test_workers_are_asked_to_pause_and_to_stop(gw: Call, pool: str) -> None:
    assert gw("pause", "--worker", pool).check().out == "Paused worker pool-a: it fetches no more jobs.\n"
    assert gw("resume", "--worker", pool).check().out == "Worker pool-a fetches jobs again.\n"
    assert gw("resume", "--worker", pool).check().out == "Worker pool-a was not paused.\n"
    assert gw("stop", pool, "--reason", "memory").check().out == "Asked worker pool-a to stop.\n"
    missing = gw("stop", "pool-none")
    assert missing.status == 1
    assert "no running Python worker has the id 'pool-none'" in missing.err
    assert gw("pause", "--worker", pool, "--for", "1h").status == 2


def test_a_job_that_does_not_run_has_no_stack(gw: Call) -> None:
    gw("add", "work").check()
    assert "it is not running, it is ready" in gw("stack", 1).err
    assert "there is no such job" in gw("stack", 99).err
