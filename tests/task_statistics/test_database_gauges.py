"""Gauges about the database: names, bounds, and schemas that only another runtime has used."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from graphile_worker import JobSpec, WorkerUtils
from graphile_worker.database.connections.connection import Connection
from graphile_worker.metrics import backlog
from graphile_worker.metrics.backlog import MAX_QUEUES, read_queue_depths
from graphile_worker.metrics.catalogue import DATABASE_METRICS, PREFIX
from graphile_worker.metrics.database_reader import read_ready_gauges, read_table_gauges
from graphile_worker.metrics.families import Family, gauges_as_text, labelled
from graphile_worker.values.schema_name import SchemaName

SCHEMA = SchemaName()


def _values(gauges: list[Family]) -> dict[str, dict[tuple[str, ...], float]]:
    return {
        each.name.removeprefix(f"{PREFIX}_"): {
            tuple(value for _, value in sample.labels): sample.value for sample in each.samples
        }
        for each in gauges
    }


async def test_gauges_have_known_names_and_the_values_of_the_table(
    utils: WorkerUtils, connection: Connection
) -> None:
    due = datetime.now(UTC) - timedelta(minutes=5)
    later = due + timedelta(days=1)
    await utils.add_jobs([JobSpec("mail", run_at=due), JobSpec("mail", run_at=later), JobSpec("report")])
    found = await read_ready_gauges(connection, SCHEMA) + await read_table_gauges(
        connection, SCHEMA, max_tasks=1
    )
    values = _values(found)
    assert values.keys() <= {metric.name for metric in DATABASE_METRICS}
    assert values["ready_jobs"] == {(): 2}
    assert values["workers"] == {("alive",): 0, ("lost",): 0}
    assert values["jobs"] == {("mail", "ready"): 1, ("mail", "scheduled"): 1, ("other", "ready"): 1}
    assert values["jobs_is_estimate"] == {(): 0}
    assert "queue_jobs" not in values, "there is no named queue"
    text = gauges_as_text([*labelled(found, {"database": "a"}), *labelled(found, {"database": "b"})])
    assert text.count("# TYPE graphile_worker_jobs gauge") == 1
    assert 'graphile_worker_jobs{database="b",task="mail",state="ready"} 1' in text.splitlines()


async def test_running_jobs_keep_the_label_they_have_had(utils: WorkerUtils, connection: Connection) -> None:
    job = await utils.add_job("mail")
    await connection.execute(
        "update graphile_worker._private_jobs set locked_at = now(), locked_by = 'pool-1' where id = $1",
        job.id,
    )
    assert (await utils.statistics.jobs()).jobs.running == 1
    assert _values(await read_table_gauges(connection, SCHEMA))["jobs"] == {("mail", "locked"): 1}


async def test_queues_are_counted_if_they_are_few_or_named(
    utils: WorkerUtils, connection: Connection
) -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    jobs = [JobSpec("mail", queue_name="a"), JobSpec("mail", queue_name="a", run_at=later)]
    await utils.add_jobs([*jobs, JobSpec("mail", queue_name="b"), JobSpec("mail")])
    assert await read_queue_depths(connection, SCHEMA) == {"a": 2, "b": 1}
    assert await read_queue_depths(connection, SCHEMA, ["a", "none"]) == {"a": 2, "none": 0}
    await utils.add_jobs([JobSpec("mail", queue_name=f"tenant:{n}") for n in range(MAX_QUEUES)])
    assert await read_queue_depths(connection, SCHEMA) == {}
    assert await read_queue_depths(connection, SCHEMA, ["b"]) == {"b": 1}


async def test_jobs_in_the_tracks_of_a_wide_queue_belong_to_it(
    utils: WorkerUtils, connection: Connection
) -> None:
    await utils.queues.set_concurrency("wide", 3)
    await connection.execute("select graphile_worker.add_job('mail', queue_name => 'wide')")
    await connection.execute("select graphile_worker.add_job('mail', queue_name => 'wide [2]')")
    assert await read_queue_depths(connection, SCHEMA) == {"wide": 2}
    assert await read_queue_depths(connection, SCHEMA, ["wide"]) == {"wide": 2}


async def test_a_long_queue_is_estimated(
    utils: WorkerUtils, connection: Connection, monkeypatch: Any
) -> None:
    monkeypatch.setattr(backlog, "COUNTED", 10)
    await utils.add_jobs([JobSpec("mail", queue_name="long") for _ in range(25)])
    await utils.add_jobs([JobSpec("mail", queue_name="short") for _ in range(10)])
    assert await read_queue_depths(connection, SCHEMA) == {"long": 25, "short": 10}


async def test_a_schema_without_our_objects_has_gauges_too(
    utils: WorkerUtils, connection: Connection
) -> None:
    await utils.add_job("mail", queue_name="a")
    await connection.execute(
        "drop index graphile_worker._private_py_jobs_queue_next_index;"
        "drop table graphile_worker._private_py_tracks, graphile_worker._private_py_workers cascade"
    )
    values = _values(
        [*await read_ready_gauges(connection, SCHEMA), *await read_table_gauges(connection, SCHEMA)]
    )
    assert "workers" not in values
    assert values["ready_jobs"] == {(): 1}
    assert values["queue_jobs"] == {("a",): 1}
