"""What tests of held batches share: a worker that holds the jobs which a test adds next.

A worker holds jobs only while they are short and many. `Holding` keeps one busy with short jobs until it
holds them, and adds the jobs of a test behind a further load of them, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import pytest

from graphile_worker import Runner
from graphile_worker.hooks.events import PoolJobsFetched
from graphile_worker.testing.results import EventRecorder
from graphile_worker.values.options import MOST_HOLD
from support.working import SCHEMA, SELDOM, Gate, Jobs, Workers, until

LOAD = 900  # jobs: several fetches, for tests in which nothing is held
SMALL_LOAD = 400  # jobs: the first fetch after a pause holds none, the third has room for those of a test
MAX_FETCH = 160  # jobs; a twelfth of what is usual; the other sizes are smaller too
WARMING = 50  # jobs of fetches until the first batch can begin
ROUNDS = 100  # small loads after which a worker that has held nothing never will
T = TypeVar("T")

ADD_LOAD = f"""
select from {SCHEMA}.add_jobs(array(
    select json_populate_record(null::{SCHEMA}.job_spec, json_build_object(
        'identifier', $2::text, 'run_at', now() - interval '1 day' + n * interval '1 ms'
    )) from generate_series(1, $1::integer) n
))"""

ARE_LEFT = f"""
select exists (
    select from {SCHEMA}._private_jobs job join {SCHEMA}._private_tasks task on task.id = job.task_id
    where task.identifier = $1
)"""

ARE_LOCKED = f"""
select exists (
    select from {SCHEMA}._private_jobs job join {SCHEMA}._private_tasks task on task.id = job.task_id
    where task.identifier = 'quick' and job.locked_at is not null
)"""

FREE_ROWS = f"select id from {SCHEMA}._private_jobs where id = any($1::bigint[]) for update skip locked"


def never_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing a loaded machine takes long for counts as slow.

    Fetches set no watermarks, below which a returned job would be found only by a later full fetch. Batches
    with a job that waits for the test stay open, even if a fetch waits for a session. Only a worker with a
    backlog opens sessions at once.

    Fetches are small too, so that a test needs fewer jobs until it has a batch. Those of the usual size are
    in tests with several workers, with killed processes and in `tests.chaos`.
    """
    monkeypatch.setattr("graphile_worker.worker.fetch.plan.SLOW", SELDOM)
    monkeypatch.setattr("graphile_worker.worker.held.sessions.PATIENCE", SELDOM)
    monkeypatch.setattr("graphile_worker.database.statements.held_batches.LOOK", "600000")
    monkeypatch.setattr("graphile_worker.worker.fetch.adaptive.MAX_FETCH", MAX_FETCH)
    monkeypatch.setattr("graphile_worker.worker.fetch.adaptive.MAX_PREFETCH", 2 * MAX_FETCH)
    monkeypatch.setattr("graphile_worker.worker.held.policy.FIRST", MAX_FETCH)
    monkeypatch.setattr("graphile_worker.worker.held.policy.WARMING", WARMING)


async def quick() -> None:
    """The task of the load."""


class Holding:
    """A worker that holds jobs, for as long as a test likes."""

    def __init__(self, jobs: Jobs, workers: Workers, recorder: EventRecorder) -> None:
        self.jobs = jobs
        self.recorder = recorder
        self._workers = workers

    async def start(self, tasks: dict[str, Any], *, is_warm: bool = True, **options: Any) -> Runner:
        """A worker with the task "quick" and these; `is_warm`: wait until it holds jobs."""
        options = {"hold": MOST_HOLD, "prefetch": SELDOM, "events": self.recorder.events, **options}
        runner = await self._workers.start({"quick": quick, **tasks}, **options)
        if is_warm:
            await self.warm_up()
        return runner

    async def warm_up(self, *, task: str = "quick") -> None:
        """Add short jobs until the worker holds some."""
        before = len(self.held_fetches)

        for _ in range(ROUNDS):
            await self.add_load(SMALL_LOAD, task=task)
            await until(lambda: self._have_ended(task), every=0.02)
            if len(self.held_fetches) > before:
                return
        raise AssertionError("the worker holds nothing")

    async def add(self, add: Callable[[], Awaitable[T]]) -> T:
        """Add jobs behind a load of short ones, so that they are held; the answer of `add`."""
        async with self.jobs.connection.transaction():
            await self.add_load(SMALL_LOAD)
            return await add()

    async def add_load(self, count: int, *, task: str = "quick") -> None:
        """Add short jobs that are due before all others, at different times: see get_tied_jobs."""
        await self.jobs.connection.execute(ADD_LOAD, count, task)

    async def _have_ended(self, task: str) -> bool:
        return not await self.jobs.connection.fetchval(ARE_LEFT, task)

    async def are_left_locked(self) -> bool:
        """Whether jobs of the load are locked in the ordinary way."""
        return await self.jobs.connection.fetchval(ARE_LOCKED)

    # -- what has happened ---------------------------------------------------------------------------------

    @property
    def held_fetches(self) -> list[int]:
        """How many jobs each fetch so far has held."""
        return [event.count for event in self._fetches if event.kind == "held"]

    @property
    def fetched(self) -> int:
        """How many jobs all fetches so far have found; what was released counts again."""
        return sum(event.count for event in self._fetches)

    @property
    def last_fetch(self) -> str:
        """The kind of the last fetch that found jobs."""
        return self._fetches[-1].kind

    @property
    def _fetches(self) -> list[PoolJobsFetched]:
        return [event for event in self.recorder.of(PoolJobsFetched) if event.count]

    def of(self, kind: type[Any], ids: Iterable[int]) -> list[int]:
        """Which of these jobs had an event of this class, in the order of the events."""
        wanted = set(ids)
        return [event.job.id for event in self.recorder.of(kind) if event.job.id in wanted]

    async def rows(self, task: str) -> list[Any]:
        """The rows of this task's jobs."""
        return [row for row in await self.jobs.all() if row["identifier"] == task]

    async def are_locked(self, task: str, count: int) -> bool:
        """Whether this many jobs of the task are locked in the ordinary way."""
        return sum(row["locked_by"] is not None for row in await self.rows(task)) == count

    async def row_locked(self, ids: Iterable[int]) -> list[int]:
        """Which of these jobs have a row that a transaction has locked."""
        ids = list(ids)
        free = {row["id"] for row in await self.jobs.connection.fetch(FREE_ROWS, ids)}
        return [job_id for job_id in ids if job_id not in free]

    async def open_until_gone(self, gate: Gate) -> None:
        """Let every call through until no job is left."""

        async def is_empty() -> bool:
            gate.open_all()
            return await self.jobs.count() == 0

        await until(is_empty)
