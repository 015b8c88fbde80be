"""Events of outcomes: emitted only for what was written, and clear about what is not retried."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from msgspec.structs import replace

from graphile_worker.database.statements.write import Written
from graphile_worker.hooks.events import (
    JobCompleted,
    JobErrored,
    JobFailed,
    JobInterrupted,
    JobOutcomeDiscarded,
    JobSucceeded,
    PoolCreated,
    PoolOutcomesWritten,
)
from graphile_worker.testing.results import EventRecorder
from graphile_worker.values.outcome import Finished, failed
from graphile_worker.worker.write.outcome_writer import OutcomeWriter
from support.finished import a_job
from support.pool_parts import pool_context
from support.working import MODES, SCHEMA, Gate, Jobs, Workers, until

JOBS = f"{SCHEMA}._private_jobs"


@pytest.mark.parametrize("mode", MODES)
async def test_an_outcome_whose_row_is_gone_is_discarded(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, mode: str
) -> None:
    """Each kind of outcome has a statement of its own, and the modes write at other times."""
    gate = Gate()
    for queue in (None, "one", None, "two"):
        await jobs.add("work", queue=queue)
    await workers.start({"work": gate}, concurrency=4, events=recorder.events, **MODES[mode])
    await gate.until_inside(4)
    await jobs.connection.execute(f"delete from {JOBS}")
    for number, error in enumerate((None, None, ValueError("no"), ValueError("no")), start=1):
        gate.open(error)
        await recorder.wait_for(JobOutcomeDiscarded, count=number)
        assert recorder.of(JobOutcomeDiscarded)[-1].error is error
    assert [recorder.count(kind) for kind in (JobSucceeded, JobErrored, JobFailed, JobCompleted)] == [0] * 4


@pytest.mark.parametrize(
    ("error", "key"), [(None, "k"), (ValueError("no"), None)], ids=["succeeds with a key", "fails"]
)
async def test_an_outcome_of_a_job_that_another_pool_holds_is_discarded(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, error: Any, key: str | None
) -> None:
    gate = Gate()
    await jobs.add("work", key=key)
    await jobs.add("other")
    await workers.start({"work": gate, "other": gate}, concurrency=2, events=recorder.events)
    await gate.until_inside(2)
    await jobs.connection.execute(f"update {JOBS} set locked_by = 'pool-other' where id = 1")
    gate.open(error)
    gate.open()
    assert (await recorder.wait_for(JobOutcomeDiscarded)).job.id == 1
    assert (await recorder.wait_for(JobSucceeded)).job.id == 2
    assert recorder.count(JobErrored) == 0
    assert (await jobs.one())["locked_by"] == "pool-other"


@pytest.mark.parametrize(
    ("how", "mode"), [("removed", "default"), ("replaced", "default"), ("removed", "local queue")]
)
async def test_a_job_that_lost_its_key_and_fails_has_failed_permanently(
    jobs: Jobs,
    workers: Workers,
    recorder: EventRecorder,
    mode: str,
    how: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    gate = Gate()
    old = await jobs.add("work", key="k")
    await workers.start({"work": gate}, events=recorder.events, **MODES[mode])
    await gate.until_inside(1)
    if how == "removed":
        await jobs.connection.execute(f"select {SCHEMA}.remove_job('k')")
    else:
        await jobs.add("unknown", key="k")
    gate.open(ValueError("too late"))
    failed = await recorder.wait_for(JobFailed)
    assert (failed.job.id, failed.is_cut_off, recorder.of(JobErrored)[0].will_retry) == (old, True, False)
    await until(lambda: "its key was removed or reused, while it ran" in caplog.text)
    assert "retrying" not in caplog.text


async def test_an_ordinary_last_failure_was_not_cut_off(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    async def fail(payload: Any) -> None:
        raise ValueError("no")

    await jobs.add("fail", max_attempts=1)
    await jobs.add("fail")
    await workers.once({"fail": fail}, events=recorder.events)
    assert [event.is_cut_off for event in recorder.of(JobFailed)] == [False]
    assert sorted(event.will_retry for event in recorder.of(JobErrored)) == [False, True]


async def test_a_removed_job_that_is_interrupted_is_not_reported_as_returned(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()
    await jobs.add("work", key="k")
    runner = await workers.start({"work": gate}, grace=0, events=recorder.events)
    await gate.until_inside(1)
    await jobs.connection.execute(f"select {SCHEMA}.remove_job('k')")
    await workers.stop(runner)
    assert recorder.count(JobInterrupted) == 0
    assert recorder.of(JobFailed)[0].is_cut_off


# -- pool:write ----------------------------------------------------------------------------------------------


def written(recorder: EventRecorder) -> tuple[int, int, int]:
    """Completed, failed and returned jobs of all writes."""
    events = recorder.of(PoolOutcomesWritten)
    return (
        sum(event.completed for event in events),
        sum(event.failed for event in events),
        sum(event.returned for event in events),
    )


@pytest.mark.parametrize("mode", MODES)
async def test_every_write_is_an_event_with_its_size_and_duration(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, mode: str
) -> None:
    async def step(payload: Any) -> None:
        if payload["n"] % 3 == 0:
            raise ValueError("no")

    await jobs.add_many("step", 10)
    await jobs.add_many("step", 10, queue="named")
    await workers.once({"step": step}, events=recorder.events, **MODES[mode])
    assert written(recorder) == (12, 8, 0)
    assert all(event.seconds > 0 for event in recorder.of(PoolOutcomesWritten))
    assert {event.pool_id for event in recorder.of(PoolOutcomesWritten)} == {
        recorder.of(PoolCreated)[0].pool_id
    }


async def test_a_write_counts_only_what_was_written(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()
    await jobs.add_many("work", 2)
    await workers.start({"work": gate}, concurrency=2, events=recorder.events)
    await gate.until_inside(2)
    await jobs.connection.execute(f"delete from {JOBS} where id = 1")
    gate.open()
    gate.open()
    await recorder.wait_for(JobOutcomeDiscarded)
    await recorder.wait_for(JobSucceeded)
    assert written(recorder) == (1, 0, 0)


async def test_a_job_that_is_interrupted_is_counted_as_returned(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()
    await jobs.add("work")
    runner = await workers.start({"work": gate}, grace=0, events=recorder.events)
    await gate.until_inside(1)
    await workers.stop(runner)
    assert written(recorder) == (0, 0, 1)


async def test_the_last_failure_is_final_if_the_answer_to_its_write_was_lost(recorder: EventRecorder) -> None:
    """The second write finds no row of this pool: the first one has written it."""
    absent: Any = None  # nothing is read: every missing job may have been written
    context = pool_context(events=recorder.events)
    writer = OutcomeWriter(context, absent, absent, absent, recorder=None, statistics=None, redactors=())
    last, earlier = (
        Finished(replace(a_job(number), attempts=attempts, max_attempts=3), failed(ValueError()), "", 0.1)
        for number, attempts in ((1, 3), (2, 2))
    )
    writer.maybe_written.update({1, 2})
    written, final = await writer._sort_out([last, earlier], Written(missing=[1, 2]), is_last_attempt=False)
    assert written == [last, earlier]
    assert final == {1}
    assert not writer.maybe_written
