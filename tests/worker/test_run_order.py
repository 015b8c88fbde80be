"""The order in which jobs start: by priority, then by run_at, across named queues and jobs without one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from graphile_worker import task
from graphile_worker.database.statements.fetch import NO_CEILING
from graphile_worker.hooks.events import JobCompleted, PoolJobsFetched, PoolListenNotification
from graphile_worker.testing.results import EventRecorder
from graphile_worker.worker.fetch import adaptive
from graphile_worker.worker.write import sink
from support.properties import examples
from support.working import SCHEMA, SELDOM, Gate, Jobs, Workers, until, until_listening

NOW = datetime.now(UTC) - timedelta(hours=1)
MAX_PREFETCH = 400


@pytest.fixture
def small_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of what is usual, so that a test needs fewer jobs until enough are prefetched."""
    monkeypatch.setattr(adaptive, "MAX_FETCH", MAX_PREFETCH // 2)
    monkeypatch.setattr(adaptive, "MAX_PREFETCH", MAX_PREFETCH)


@dataclass(frozen=True)
class Planned:
    """A job that a test adds."""

    number: int
    queue: str | None
    priority: int
    seconds: int

    @property
    def place(self) -> tuple[int, int]:
        """Its place in the run order; jobs with equal places may run in any order."""
        return self.priority, self.seconds


@st.composite
def mixtures(draw: st.DrawFn) -> list[Planned]:
    """Jobs of some queues and of none, of few priorities and times, so that many are next to each other."""
    kinds = st.tuples(
        st.sampled_from([None, None, "a", "b", "c"]),
        st.sampled_from([-32768, -10, 0, 0, 10, 32767]),
        st.integers(0, 5),
    )
    drawn = draw(st.lists(kinds, min_size=2, max_size=25))
    return [Planned(number, *kind) for number, kind in enumerate(drawn)]


async def add_all(jobs: Jobs, plan: Sequence[Planned]) -> None:
    await jobs.connection.execute(
        f"select {SCHEMA}.add_job('step', json_build_object('n', n), queue_name => queue, priority => p, "
        "run_at => $1::timestamptz + s * interval '1 second') "
        "from unnest($2::integer[], $3::text[], $4::integer[], $5::integer[]) as planned (n, queue, p, s)",
        NOW,
        [job.number for job in plan],
        [job.queue for job in plan],
        [job.priority for job in plan],
        [job.seconds for job in plan],
    )


several_examples = examples(15, HealthCheck.function_scoped_fixture)  # each starts a worker


@several_examples
@given(plan=mixtures(), pause=st.sampled_from([0.0, 0.002]))
async def test_one_slot_runs_everything_in_the_order_of_one_sorted_list(
    jobs: Jobs, workers: Workers, plan: list[Planned], pause: float
) -> None:
    started: list[Planned] = []

    async def step(payload: Any) -> None:
        started.append(plan[payload["n"]])
        if pause:
            await asyncio.sleep(pause)

    await add_all(jobs, plan)
    await workers.once({"step": step}, concurrency=1, prefetch=0)
    assert [job.place for job in started] == sorted(job.place for job in plan)


@several_examples
@given(plan=mixtures(), seed=st.integers(0, 2**32), slots=st.integers(1, 4))
async def test_a_free_slot_takes_the_first_of_all_jobs_that_can_run(
    jobs: Jobs, workers: Workers, plan: list[Planned], seed: int, slots: int
) -> None:
    choose = Random(seed).choice
    running: dict[int, asyncio.Future[None]] = {}
    started: list[Planned] = []

    async def step(payload: Any) -> None:
        job = plan[payload["n"]]
        started.append(job)
        running[job.number] = asyncio.get_running_loop().create_future()
        await running[job.number]

    def candidates() -> list[Planned]:
        busy = {plan[number].queue for number in running} - {None}
        return [job for job in plan if job not in started and job.queue not in busy]

    await add_all(jobs, plan)
    runner = await workers.start({"step": step}, concurrency=slots, prefetch=0)
    try:
        await until(lambda: len(running) == slots or not candidates())
        assert [job.place for job in started] == sorted(job.place for job in started)
        while running:
            running.pop(choose(sorted(running))).set_result(None)
            if expected := candidates():
                count = len(started)
                await until(lambda count=count: len(started) > count)  # type: ignore[misc]
                assert started[count].place == min(job.place for job in expected), started
    finally:
        await runner.kill()
        await jobs.connection.execute(f"delete from {SCHEMA}._private_jobs")
    assert len(started) == len(plan)


async def test_slow_jobs_are_not_prefetched_and_keep_the_order_of_one_sorted_list(
    jobs: Jobs, workers: Workers
) -> None:
    started: list[str] = []

    async def step(payload: Any) -> None:
        started.append(payload["kind"])
        await asyncio.sleep(0.002)  # timing: longer than the prefetch; more is as good

    for _ in range(15):
        await jobs.add("step", {"kind": "queued"}, queue="a", priority=-10)
        await jobs.add("step", {"kind": "plain"}, priority=10)
    await workers.once({"step": step}, concurrency=1, prefetch=0.001)
    assert started == ["queued"] * 15 + ["plain"] * 15


@pytest.mark.parametrize("slots", [1, 3])
async def test_an_urgent_job_waits_for_no_job_that_was_locked_after_it_was_added(
    small_fetches: None, jobs: Jobs, workers: Workers, recorder: EventRecorder, slots: int
) -> None:
    started: list[Any] = []

    async def step(payload: Any) -> None:
        started.append(payload.get("n"))
        await asyncio.sleep(0)

    await workers.start({"step": step}, concurrency=slots, events=recorder.events)
    await until_listening(recorder, jobs.connection)
    await jobs.add_many("step", 6_000)
    await until(lambda: len(started) > 500)
    async with jobs.connection.transaction():
        # No fetch is in flight now, no batch is held, and none begins before the urgent job is visible.
        await jobs.connection.execute(f"lock table {SCHEMA}._private_jobs in exclusive mode")
        await jobs.add("step", {"n": "urgent"}, priority=-1)
        rows = await jobs.connection.fetch(
            f"select (payload ->> 'n')::integer from {SCHEMA}._private_jobs where locked_at is null"
            " and priority = 0"
        )
        unlocked = {row[0] for row in rows}
    assert unlocked  # otherwise it was the last job, and this proves nothing
    await until(lambda: "urgent" in started)
    assert not unlocked & set(started[: started.index("urgent")])


async def test_a_queue_that_goes_on_does_not_pass_jobs_that_come_first(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()

    async def step(payload: Any) -> None:
        await gate(payload["name"])

    await jobs.add("step", {"name": "head of the queue"}, queue="a", priority=-5)
    await jobs.add("step", {"name": "first"}, run_at=NOW)
    await jobs.add("step", {"name": "second"}, run_at=NOW + timedelta(seconds=1))
    await jobs.add("step", {"name": "next of the queue"}, queue="a", priority=10)
    await workers.start({"step": step}, concurrency=1, local_queue={"size": 4}, events=recorder.events)
    await gate.until_inside(1)
    for done in range(1, 5):
        gate.open()
        await recorder.wait_for(JobCompleted, count=done)
    assert gate.started == ["head of the queue", "first", "second", "next of the queue"]


async def test_a_job_announced_while_a_queue_goes_on_is_not_forgotten(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, database_url: str
) -> None:
    gate = Gate()

    async def step(payload: Any) -> None:
        await gate(payload["name"])

    for name in ("head of the queue", "next of the queue"):
        await jobs.add("step", {"name": name}, queue="a")
    await workers.start({"step": step}, concurrency=2, prefetch=0, events=recorder.events)
    await gate.until_inside(1)
    await until_listening(recorder, jobs.connection)
    other = await asyncpg.connect(database_url)
    try:
        async with other.transaction():  # the write that ends the first job has to wait
            await other.execute(f"select from {SCHEMA}._private_jobs where locked_at is not null for update")
            gate.open()
            await until(lambda: is_waiting_for_a_lock(jobs))
            received = recorder.count(PoolListenNotification)
            await jobs.add("step", {"name": "announced"})
            await until(lambda: recorder.count(PoolListenNotification) > received)
    finally:
        await other.close(timeout=60)
    await gate.until_inside(2)  # neither waits for the end of the other
    gate.open()
    gate.open()
    await jobs.until_gone()


@pytest.mark.parametrize("prefetch", [0.0, 0.05])
async def test_a_write_that_waits_for_a_lock_holds_no_other_job_back_for_long(
    jobs: Jobs, workers: Workers, database_url: str, prefetch: float
) -> None:
    """The next job of the queue would come first, but who knows when."""
    other = await asyncpg.connect(database_url)
    started: list[Any] = []

    async def step(payload: Any) -> None:
        started.append(payload["kind"])
        if payload["kind"] == "queued":
            await other.execute(f"select from {SCHEMA}._private_jobs where priority = -5 for update")

    try:
        async with other.transaction():  # the write that ends the job of the queue has to wait
            await add_kinds(jobs, "short", 100, priority=-10)
            await add_kinds(jobs, "queued", 1, priority=-5, queues=1)
            await add_kinds(jobs, "plain", 20, priority=0)
            await workers.start({"step": step}, concurrency=1, prefetch=prefetch, hold=0, poll_interval=0.1)
            await until(lambda: started.count("plain") == 20)
            assert await is_waiting_for_a_lock(jobs)
    finally:
        await other.close(timeout=60)
    await jobs.until_gone()


async def test_what_is_held_back_is_let_go_when_queues_have_become_wide_meanwhile(
    jobs: Jobs, workers: Workers
) -> None:
    started: list[Any] = []

    async def step(payload: Any) -> None:
        started.append(payload["kind"])

    runner: Any = await workers.start({"step": step}, concurrency=1)
    (lane,) = runner._pool._lanes
    lane.source.cap_priority(-5)  # as while the job of a queue is written
    lane.fetcher._wide_queues.is_wide = True
    lane.source.cap_priority(NO_CEILING)
    assert lane.source._ceiling == NO_CEILING
    await add_kinds(jobs, "plain", 10, priority=0)
    await jobs.until_gone()
    assert started == ["plain"] * 10


async def is_waiting_for_a_lock(jobs: Jobs) -> bool:
    return await jobs.connection.fetchval(
        "select count(*) > 0 from pg_stat_activity "
        "where datname = current_database() and wait_event_type = 'Lock'"
    )


# -- prefetched jobs and named queues ------------------------------------------------------------------------

QUEUED, PLAIN = 60, 400


async def add_kinds(jobs: Jobs, kind: str, count: int, *, priority: int, queues: int = 0) -> None:
    await jobs.connection.execute(
        f"select {SCHEMA}.add_job('step', json_build_object('kind', $1::text, 'queue', n % $4), "
        "queue_name => case when $4 > 0 then 'queue ' || n % $4 end, priority => $3) "
        "from generate_series(1, $2) n" if queues else
        f"select {SCHEMA}.add_job('step', json_build_object('kind', $1::text), priority => $3) "
        "from generate_series(1, $2) n where $4 = 0",
        kind,
        count,
        priority,
        queues,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("slots", "queues", "pause"),
    [(slots, queues, pause) for slots, queues in ((1, 1), (4, 3)) for pause in (None, 0.0, 0.001)]
    + [(1, 3, 0.0), (4, 1, 0.0)],
)
async def test_no_prefetched_job_starts_before_the_next_of_a_queue_that_comes_first(
    jobs: Jobs,
    workers: Workers,
    monkeypatch: pytest.MonkeyPatch,
    slots: int,
    queues: int,
    pause: float | None,
) -> None:
    """It is ready when the one before is written. Until then, jobs of worse priorities wait."""
    for module, limit in (
        (adaptive, "OVERSTAY"),
        (sink, "LATE"),
    ):  # they do not wait for a statement that hangs
        monkeypatch.setattr(module, limit, SELDOM)
    left = dict.fromkeys(range(queues), 0)
    for n in range(1, QUEUED + 1):
        left[n % queues] += 1
    running: list[int] = []
    too_early: list[dict[int, int]] = []
    started: list[str] = []

    async def step(payload: Any) -> None:
        started.append(payload["kind"])
        queue = payload.get("queue")
        if queue is None:
            if any(count and number not in running for number, count in left.items()):
                too_early.append(dict(left))
        else:
            left[queue] -= 1
            running.append(queue)
        if pause is not None:
            await asyncio.sleep(pause)
        if queue is not None:
            running.remove(queue)

    await add_kinds(jobs, "plain", PLAIN, priority=10)
    await add_kinds(jobs, "queued", QUEUED, priority=-10, queues=queues)
    await workers.once({"step": step}, concurrency=slots)
    assert len(started) == QUEUED + PLAIN
    assert too_early == []
    if slots == 1:
        assert started == ["queued"] * QUEUED + ["plain"] * PLAIN


async def test_jobs_of_equal_priority_do_not_wait_for_those_of_a_queue(jobs: Jobs, workers: Workers) -> None:
    """The next job of a queue cannot come before them, so nothing is held back for its write."""
    started: list[str] = []

    async def step(payload: Any) -> None:
        started.append(payload["kind"])

    await add_kinds(jobs, "plain", PLAIN, priority=0)
    await add_kinds(jobs, "queued", QUEUED, priority=0, queues=1)
    await workers.once({"step": step}, concurrency=1)
    assert len(started) == QUEUED + PLAIN
    assert "plain" in started[: started.index("queued") + QUEUED]


LONG = 30.0  # seconds of work that may be prefetched: as many jobs as ever are
MANY = MAX_PREFETCH + 100


class Backlog:
    """A worker that has prefetched short jobs of priority 0 and is held up by the first of the rest."""

    def __init__(self, jobs: Jobs, workers: Workers, recorder: EventRecorder) -> None:
        self.jobs = jobs
        self.workers = workers
        self.recorder = recorder
        self.gate = Gate()
        self.started: list[str] = []

    async def start(self, **tasks: Any) -> None:
        async def step(payload: Any) -> None:
            self.started.append(payload["kind"])
            if payload["kind"] == "gate":
                await self.gate()

        await self.workers.start(
            {"step": step, **tasks}, concurrency=1, prefetch=LONG, hold=0, events=self.recorder.events
        )
        await until_listening(self.recorder, self.jobs.connection)
        await add_kinds(self.jobs, "short", 100, priority=-5)
        await until(lambda: len(self.started) == 100)
        async with self.jobs.connection.transaction():
            await add_kinds(self.jobs, "gate", 1, priority=-5)
            await add_kinds(self.jobs, "plain", MANY, priority=0)
        await self.gate.until_inside(1)
        await until(self.is_full)

    async def is_full(self) -> bool:
        """Whether so many are prefetched that no more are fetched."""
        return await self.jobs.locked() > 1 + MAX_PREFETCH // 2

    async def finish(self) -> list[str]:
        """Let all run; what started after the gate."""
        self.gate.open()
        await self.jobs.until_gone()
        return self.started[self.started.index("gate") + 1 :]


@pytest.fixture
def backlog(small_fetches: None, jobs: Jobs, workers: Workers, recorder: EventRecorder) -> Backlog:
    return Backlog(jobs, workers, recorder)


@pytest.mark.parametrize("queues", [0, 1])
async def test_an_urgent_job_that_is_added_later_overtakes_what_is_prefetched(
    backlog: Backlog, queues: int
) -> None:
    await backlog.start()
    await add_kinds(backlog.jobs, "urgent", 3, priority=-1, queues=queues)

    async def is_locked() -> bool:
        urgent = [row for row in await backlog.jobs.all() if row["priority"] == -1]
        return sum(row["locked_at"] is not None for row in urgent) == (1 if queues else 3)

    await until(is_locked)
    assert await backlog.finish() == ["urgent"] * 3 + ["plain"] * MANY


async def test_the_queue_of_an_urgent_job_becomes_as_wide_as_its_task_says(backlog: Backlog) -> None:
    @task(queue_concurrency=2)
    async def wide() -> None: ...

    await backlog.start(wide=wide)
    for _ in range(2):
        await backlog.jobs.add("wide", queue="a", priority=-1)

    async def is_wide() -> bool:
        return await backlog.jobs.connection.fetchval(
            f"select exists (select from {SCHEMA}._private_py_tracks)"
        )

    await until(is_wide)
    assert await backlog.finish() == ["plain"] * MANY


async def test_jobs_of_the_same_priority_are_not_looked_for_while_enough_are_prefetched(
    backlog: Backlog,
) -> None:
    """They would be found too, but each look costs a statement."""
    await backlog.start()
    began, fetches = time.monotonic(), len(backlog.recorder.of(PoolJobsFetched))
    heard = backlog.recorder.count(PoolListenNotification)
    for _ in range(200):
        await add_kinds(backlog.jobs, "later", 1, priority=0)
    await until(lambda: backlog.recorder.count(PoolListenNotification) == heard + 200)
    looks = backlog.recorder.of(PoolJobsFetched)[fetches:]
    assert {(fetch.kind, fetch.count) for fetch in looks} <= {("plain", 0), ("urgent", 0)}
    assert len(looks) <= 10 + (time.monotonic() - began)  # ever less often, up to once a second
    assert await backlog.finish() == ["plain"] * MANY + ["later"] * 200
