"""Adding through a driver that knows nothing of this package: psycopg 3, blocking, in its own transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import tuple_row

from graphile_worker.database.connections.statement import Statement, Steps
from graphile_worker.database.statements.add import add_statement, job_from_row
from graphile_worker.database.statements.add_many import add_many_steps
from graphile_worker.values.job import Job
from graphile_worker.values.schema_name import SchemaName
from graphile_worker.values.spec import JobSpec

SCHEMA = SchemaName()
HOSTILE = "a'b\"c %s %(p1)s %% $1 $$ \\ {x} :y\n-- drop\n;select 1; --ü"
LATER = datetime(2200, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
ALL = """
    select task_identifier, payload::text, queue_name, run_at, max_attempts, key, priority, flags
    from graphile_worker._private_jobs join (select id as task_id, identifier as task_identifier
        from graphile_worker._private_tasks) as tasks using (task_id)
    left join (select id as job_queue_id, queue_name from graphile_worker._private_job_queues) as queues
        using (job_queue_id)
    order by id
"""

Run = Callable[[Statement], Sequence[Any]]


@pytest.fixture
def session(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_url, row_factory=tuple_row) as session:
        yield session


@pytest.fixture(params=["numbers", "names"])
def run(request: pytest.FixtureRequest, session: psycopg.Connection[Any]) -> Run:
    """Runs a statement as it is, or translated for drivers with named parameters."""

    def with_numbers(statement: Statement) -> Sequence[Any]:
        return psycopg.RawCursor(session).execute(*statement).fetchall()

    def with_names(statement: Statement) -> Sequence[Any]:
        return session.execute(*statement.pyformat()).fetchall()

    return with_numbers if request.param == "numbers" else with_names


def run_all(steps: Steps[list[Job]], run: Run) -> list[Job]:
    rows: Any = None
    while True:
        try:
            rows = run(steps.send(rows))
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize(
    "spec",
    [
        JobSpec("plain", {"a": [1, None, "ü"]}),
        JobSpec("plain", run_at=LATER, max_attempts=3, priority=-7, flags=["b", "a"]),
        JobSpec("in queue", queue_name="q", run_at=timedelta(days=1)),
        JobSpec("keyed", [1], job_key="key", job_key_mode="preserve_run_at"),
    ],
)
def test_one_job_is_added_in_the_callers_transaction(
    session: psycopg.Connection[Any], run: Run, spec: JobSpec
) -> None:
    statement = add_statement(SCHEMA, spec)
    [row] = run(statement)
    job = job_from_row(row, statement)
    assert job is not None
    [stored] = session.execute(ALL).fetchall()
    assert stored == (
        job.task_identifier, job.raw_payload, spec.queue_name, job.run_at, job.max_attempts, job.key,
        job.priority, job.flags,
    )  # fmt: skip
    assert (job.task_identifier, job.key) == (spec.task_identifier, spec.job_key)
    if isinstance(spec.run_at, datetime):
        assert job.run_at == spec.run_at
    session.rollback()
    assert session.execute(ALL).fetchall() == []


def test_hostile_values_arrive_unchanged(session: psycopg.Connection[Any], run: Run) -> None:
    spec = JobSpec(HOSTILE, {HOSTILE: HOSTILE}, queue_name=HOSTILE, job_key=HOSTILE, flags=[HOSTILE])
    statement = add_statement(SCHEMA, spec)
    [row] = run(statement)
    job = job_from_row(row, statement)
    assert job is not None
    assert (job.task_identifier, job.payload, job.key) == (HOSTILE, {HOSTILE: HOSTILE}, HOSTILE)
    [stored] = session.execute(ALL).fetchall()
    assert (stored[0], stored[2], stored[5], stored[7]) == (HOSTILE, HOSTILE, HOSTILE, {HOSTILE: True})
    [again] = run_all(add_many_steps(SCHEMA, [spec.replace(payload=1)]), run)
    assert (again.id, again.payload, again.key) == (job.id, 1, HOSTILE)


@pytest.mark.parametrize(
    "specs",
    [
        [JobSpec("a", number) for number in range(1200)],
        [JobSpec("ab"[number % 2], number, priority=number) for number in range(20)],
        [JobSpec("a", number, job_key=f"k{number % 2}{number}", flags=["f"]) for number in range(20)],
    ],
)
def test_many_jobs_are_added_in_order(
    session: psycopg.Connection[Any], run: Run, specs: list[JobSpec]
) -> None:
    for _ in range(2):  # the tasks are new, then known
        session.execute("delete from graphile_worker._private_jobs")
        jobs = run_all(add_many_steps(SCHEMA, specs), run)
        assert [job.payload for job in jobs] == [spec.payload for spec in specs]
        assert [job.task_identifier for job in jobs] == [spec.task_identifier for spec in specs]
        stored = session.execute(ALL).fetchall()
        assert sorted((row[0], row[1]) for row in stored) == sorted(
            (job.task_identifier, job.raw_payload) for job in jobs
        )
