"""An outcome that the database refuses holds up no other, and is failed or given up with a clear word."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from graphile_worker.hooks import Events
from graphile_worker.hooks.events import JobErrored, JobFailed, JobOutcomeDiscarded, JobSucceeded
from graphile_worker.testing.database import DatabaseServer
from graphile_worker.testing.results import EventRecorder
from support.working import (
    IS_LOCKED_OUT,
    SCHEMA,
    Gate,
    Jobs,
    Workers,
    headline,
    terminate_workers,
    until,
    workers_of,
)

GOOD = 300
BAD = 150  # the number of the bad one among the good
JOBS = f"{SCHEMA}._private_jobs"


class BrokenError(Exception):
    """Its message cannot be read."""

    def __str__(self) -> str:
        raise LookupError("no message")

    __repr__ = __str__


@dataclass(frozen=True)
class Kind:
    """A reason why an outcome cannot be written."""

    setup: str = ""
    error: Callable[[], BaseException | None] = lambda: None
    last_error: str | None = None
    """A part of the text that the job fails with; None if it is given up."""


def trigger(timing: str, body: str, *, rest: str = "") -> str:
    return (
        f"create function refuse() returns trigger language plpgsql as $$ begin "
        f"if old.payload->>'n' = '{BAD}' and old.locked_by is not null then {body} end if; "
        f"return coalesce(new, old); end $$;"
        f"create {'constraint ' if rest else ''}trigger refuse {timing} on {JOBS} {rest} "
        "for each row execute function refuse();"
    )


PLAINLY = "Its outcome could not be written: "

KINDS = {
    "an error whose text cannot be read": Kind(error=BrokenError, last_error="BrokenError"),
    "an error with characters that are none": Kind(
        error=lambda: ValueError("a\0b \ud83d alone"), last_error=r"a\x00b \ud83d alone"
    ),
    "an error that is too long": Kind(
        setup=f"alter table {JOBS} add constraint small check (length(last_error) < 2000)",
        error=lambda: ValueError("x" * 3_000_000),
        last_error=f'{PLAINLY}new row for relation "_private_jobs" violates check constraint "small"',
    ),
    "a trigger that refuses the deletion": Kind(
        setup=trigger("before delete", "raise exception 'not this one';"),
        last_error=f"{PLAINLY}not this one",
    ),
    "a trigger with an error of its own": Kind(
        setup=trigger("before delete", "perform 1 from no_such_table;"),
        last_error=f'{PLAINLY}relation "no_such_table" does not exist',
    ),
    "a trigger that refuses at the commit": Kind(
        setup=trigger("after delete", "raise exception 'not now';", rest="deferrable initially deferred"),
        last_error=f"{PLAINLY}not now",
    ),
    "a trigger that silently keeps the row": Kind(
        setup=trigger("before delete", "return null;"), last_error=f"{PLAINLY}the row did not change"
    ),
    "a trigger that refuses everything": Kind(
        setup=trigger("before delete or update", "raise exception 'hands off';")
    ),
    "a trigger that silently keeps the row as it is": Kind(
        setup=trigger("before delete or update", "return null;")
    ),
    "a constraint": Kind(
        setup=f"alter table {JOBS} add constraint polite check (last_error not like 'ValueError: rude%')",
        error=lambda: ValueError("rude"),
        last_error=f'{PLAINLY}new row for relation "_private_jobs" violates check constraint "polite"',
    ),
}


class Load:
    """Jobs that complete, and one among them that does not."""

    def __init__(self, error: Callable[[], BaseException | None]) -> None:
        self._error = error
        self.ran: Counter[int] = Counter()
        self.events = Events()
        self.recorder = EventRecorder(self.events)

    async def step(self, payload: Any) -> None:
        self.ran[payload["n"]] += 1
        if payload["n"] == BAD and (error := self._error()) is not None:
            raise error

    async def add(self, jobs: Jobs, *, queue: str | None = None) -> int:
        """The id of the bad one."""
        ids = await jobs.add_many("step", GOOD + 1, queue=queue)
        # One attempt only, so that no job may run twice.
        await jobs.connection.execute(f"update {JOBS} set max_attempts = 1")
        return ids[BAD]

    async def run(self, jobs: Jobs, workers: Workers, bad: int, count: int, **options: Any) -> Any:
        """Wait until all good jobs are written and the bad one is dealt with; the row of the bad one."""
        options.setdefault("hold", 0)  # the triggers refuse what happens to locked jobs
        for _ in range(count):
            await workers.start({"step": self.step}, concurrency=10, events=self.events, **options)
        await until(lambda: self._only_left(jobs, bad))
        await until(lambda: bool(self.recorder.of(JobFailed) or self.recorder.of(JobOutcomeDiscarded)))
        return await jobs.one()

    async def _only_left(self, jobs: Jobs, bad: int) -> bool:
        return await jobs.connection.fetchval(f"select count(*) from {JOBS} where id <> $1", bad) == 0

    def assert_all_ran_once(self) -> None:
        assert self.ran == Counter(dict.fromkeys(range(GOOD + 1), 1))


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *((name, 1) for name in KINDS),
        ("a trigger that refuses the deletion", 3),
        ("a trigger that silently keeps the row as it is", 3),
    ],
)
async def test_one_outcome_that_cannot_be_written_holds_up_no_other(
    jobs: Jobs, workers: Workers, name: str, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    """`count`: of workers."""
    kind = KINDS[name]
    load = Load(kind.error)
    bad = await load.add(jobs)
    if kind.setup:
        await jobs.connection.execute(kind.setup)
    row = await load.run(jobs, workers, bad, count)
    if kind.last_error is not None:
        assert kind.last_error in row["last_error"]
        assert row["locked_by"] is None
        assert load.recorder.count(JobErrored) == load.recorder.count(JobFailed) == 1
        assert load.recorder.count(JobSucceeded) == GOOD
    else:
        assert row["locked_by"] is not None
        assert load.recorder.count(JobSucceeded) == GOOD
        (discarded,) = load.recorder.of(JobOutcomeDiscarded)
        assert "the database refuses every outcome" in discarded.reason
        assert f"task step (job {bad}) has ended, but the database refuses every outcome" in caplog.text
    assert "the database is unavailable" not in caplog.text
    load.assert_all_ran_once()
    await _stop_within_seconds(workers)


async def _stop_within_seconds(workers: Workers) -> None:
    for runner in workers._runners:
        await workers.stop(runner)


@pytest.mark.parametrize("queue", ["named", None])
async def test_a_job_that_is_given_up_holds_up_neither_its_queue_nor_the_end(
    jobs: Jobs, workers: Workers, caplog: pytest.LogCaptureFixture, queue: str | None
) -> None:
    kind = KINDS["a trigger that refuses everything"]
    load = Load(kind.error)
    await jobs.add("step", {"n": BAD}, queue=queue, max_attempts=1)
    for n in range(5):
        await jobs.add("step", {"n": n}, queue=queue)
    await jobs.connection.execute(kind.setup)
    runner = await workers.start({"step": load.step}, events=load.events)
    await load.recorder.wait_for(JobSucceeded, count=5)
    await workers.stop(runner)
    assert (await jobs.one())["locked_by"] is not None
    workers_left = await jobs.connection.fetchval(f"select count(*) from {SCHEMA}._private_py_workers")
    assert workers_left == 1  # so that a sweep can recover the job
    assert "could not stop" not in caplog.text


async def test_a_job_that_is_given_up_is_left_alone_after_a_lost_connection(
    jobs: Jobs, workers: Workers
) -> None:
    """The pool then returns jobs that it holds unknowingly; with this one that would be refused."""
    kind = KINDS["a trigger that refuses everything"]
    load = Load(kind.error)
    bad = await jobs.add("step", {"n": BAD})
    await jobs.connection.execute(kind.setup)
    gate = Gate()
    await workers.start({"step": load.step, "other": gate}, events=load.events)
    await load.recorder.wait_for(JobOutcomeDiscarded)
    await jobs.add("other")
    await gate.until_inside(1)
    async with jobs.connection.transaction():
        await jobs.connection.execute(f"lock table {JOBS} in share row exclusive mode")
        gate.open()
        await until(lambda: jobs.connection.fetchval(IS_LOCKED_OUT))
        await terminate_workers(jobs.connection)  # in the middle of the write
    await load.recorder.wait_for(JobSucceeded)
    for n in range(3):
        await jobs.add("step", {"n": n})
    await load.recorder.wait_for(JobSucceeded, count=4)
    assert (await jobs.one())["id"] == bad
    assert load.ran[BAD] == 1


async def test_a_trigger_that_refuses_everything_is_not_many_bad_outcomes(
    jobs: Jobs, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    """Only a few are given up; the others are kept and written when that is possible."""
    load = Load(lambda: None)
    await jobs.add_many("step", 100)
    await jobs.connection.execute(
        "create function refuse() returns trigger language plpgsql as $$ begin "
        "if old.locked_by is not null then raise exception 'out of order'; end if; "
        "return coalesce(new, old); end $$;"
        f"create trigger refuse before delete or update on {JOBS} for each row execute function refuse()"
    )
    await workers.start({"step": load.step}, concurrency=10, events=load.events)
    await until(lambda: "outcomes could not be written and are kept: out of order" in caplog.text)
    given_up = load.recorder.count(JobOutcomeDiscarded)
    assert given_up == 10
    await jobs.connection.execute(f"drop trigger refuse on {JOBS}")
    await load.recorder.wait_for(JobSucceeded, count=100 - given_up)
    assert await jobs.count() == given_up
    assert set(load.ran.values()) == {1}


# -- other databases -----------------------------------------------------------------------------------


@pytest.fixture
async def latin1_url(server: DatabaseServer) -> AsyncIterator[str]:
    """A database that cannot hold every character."""
    name = f"{server.prefix}latin1"
    admin = await asyncpg.connect(server.admin_url)
    try:
        provider = "locale_provider libc" if server.major >= 15 else ""
        await admin.execute(
            f"create database \"{name}\" template template0 encoding 'LATIN1' {provider} "
            "lc_collate 'C' lc_ctype 'C'"
        )
        yield server.url(name)
        server.drop_database(name)
    finally:
        await admin.close()


async def test_characters_that_the_database_cannot_hold_are_replaced(latin1_url: str) -> None:
    load = Load(lambda: ValueError("5 € für ä"))
    async for workers in workers_of(latin1_url):
        await workers.once({"step": load.step})  # installs the schema
        connection = await asyncpg.connect(latin1_url)
        try:
            jobs = Jobs(connection)
            row = await load.run(jobs, workers, await load.add(jobs), 1)
            assert headline(row).endswith("5 ? für ä")
            load.assert_all_ran_once()
        finally:
            await connection.close()


@pytest.fixture
async def limited_url(server: DatabaseServer, database_url: str, connection: Any) -> AsyncIterator[str]:
    """The test's database, connected as a role to which row security applies."""
    role = f"{server.prefix}limited"
    await connection.execute(
        f'create role "{role}" login;'
        f'grant usage on schema {SCHEMA} to "{role}"; '
        f'grant all on all tables in schema {SCHEMA} to "{role}";'
        f'grant all on all sequences in schema {SCHEMA} to "{role}"; '
        + "".join(
            f'create policy limited on {SCHEMA}.{table} to "{role}" using (true) with check ({check});'
            for table, check in (
                ("_private_jobs", "last_error is null or last_error not like 'ValueError: secret%'"),
                ("_private_job_queues", "true"),
                ("_private_tasks", "true"),
                ("_private_known_crontabs", "true"),
                ("_private_py_workers", "true"),
                ("_private_py_recoveries", "true"),
                ("_private_py_migrations", "true"),
            )
        )
    )
    try:
        separator = "&" if "?" in database_url else "?"
        yield f"{database_url}{separator}options=-c%20role%3D{role}"
    finally:
        await connection.execute(f'drop owned by "{role}"; drop role "{role}"')


async def test_what_row_security_refuses_holds_up_no_other(jobs: Jobs, limited_url: str) -> None:
    load = Load(lambda: ValueError("secret"))
    bad = await load.add(jobs)
    async for workers in workers_of(limited_url):
        row = await load.run(jobs, workers, bad, 1)
        assert row["last_error"].startswith(f"{PLAINLY}")
        assert "row-level security" in row["last_error"]
        load.assert_all_ran_once()
        await _stop_within_seconds(workers)


async def test_a_missing_grant_is_not_about_one_outcome(
    jobs: Jobs, limited_url: str, connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    load = Load(lambda: None)
    role = limited_url.rsplit("%3D", 1)[1]
    await load.add(jobs)
    await connection.execute(f'revoke delete on {JOBS} from "{role}"')
    async for workers in workers_of(limited_url):
        await workers.start({"step": load.step}, events=load.events)
        await until(lambda: "outcomes could not be written and are kept" in caplog.text)
        await connection.execute(f'grant delete on {JOBS} to "{role}"')
        await load.recorder.wait_for(JobSucceeded, count=GOOD + 1)
        load.assert_all_ran_once()
