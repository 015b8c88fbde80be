"""Which outcomes one statement writes, in which order, and when there are too many. Pure."""

from __future__ import annotations

import itertools

import pytest

from graphile_worker.database.statements.fetch import NO_CEILING
from graphile_worker.errors import JobInterruptedError
from graphile_worker.testing import make_job
from graphile_worker.values.outcome import (
    Cancelled,
    Completed,
    Expired,
    Finished,
    Interrupted,
    Kept,
    Outcome,
    Snoozed,
    failed,
)
from graphile_worker.values.retention import Retention
from graphile_worker.worker.write import unwritten as module
from graphile_worker.worker.write.unwritten import Unwritten

DAY, WEEK = Retention(86_400.0), Retention(604_800.0)
ids = itertools.count(1)


def finished(
    outcome: Outcome, *, queue: int | None = None, priority: int = 0, payload: object = None
) -> Finished:
    job = make_job(id=next(ids), job_queue_id=queue, priority=priority, payload=payload)
    return Finished(job, outcome, "worker-1", 0.001)


def interrupted(note: str) -> Interrupted:
    return Interrupted(JobInterruptedError(note))


def filled(*outcomes: Outcome) -> tuple[Unwritten, list[Finished]]:
    unwritten, batch = Unwritten(), [finished(outcome) for outcome in outcomes]
    for each in batch:
        unwritten.put(each)
    return unwritten, batch


def batches(unwritten: Unwritten) -> list[list[Finished]]:
    return list(iter(unwritten.next_write, []))


def test_jobs_that_ended_early_come_first_and_those_with_another_note_later() -> None:
    unwritten, (done, first, other, second, cancelled) = filled(
        Completed(), interrupted("a"), interrupted("b"), interrupted("a"), Cancelled("reason")
    )
    assert unwritten.is_urgent
    assert batches(unwritten) == [[first, second], [other], [cancelled], [done]]
    assert not unwritten.is_urgent


def test_one_statement_keeps_all_alike() -> None:
    unwritten, (day, week, done, too_late, another_day) = filled(
        Kept(retention=DAY),
        Kept(retention=WEEK),
        Completed(),
        Expired(2.0, 1.0, _retention=DAY),
        Kept(retention=DAY),
    )
    assert batches(unwritten) == [[done, day, another_day], [week], [too_late]]


def test_completed_and_failed_jobs_share_a_statement() -> None:
    unwritten, (bad, done, later) = filled(failed(ValueError("no")), Completed(), Snoozed(1.0))
    assert batches(unwritten) == [[done, bad, later]]
    assert unwritten.not_deleted == 1  # a held batch would have written the failure, which is retried


def test_a_statement_has_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OUTCOMES", 2)
    monkeypatch.setattr(module, "MAX_WRITE_BYTES", 1000)
    unwritten, outcomes = filled(*[Completed()] * 3, *[failed(ValueError("x" * 2000))] * 2)
    assert batches(unwritten) == [outcomes[:2], [outcomes[2], outcomes[3]], [outcomes[4]]]


def test_what_was_not_written_comes_before_what_is_newer() -> None:
    outcomes = Completed(), failed(ValueError()), Kept(retention=DAY)
    unwritten, old = filled(*outcomes)
    batch = unwritten.next_write()
    new = [finished(outcome) for outcome in outcomes]
    for each in new:
        unwritten.put(each)
    unwritten.requeue(batch)
    assert batches(unwritten) == [[old[0], new[0], old[2], new[2], old[1], new[1]]]


def test_too_much_is_counted_by_number_until_half_of_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_UNWRITTEN", 4)
    monkeypatch.setattr(module, "MAX_OUTCOMES", 1)
    unwritten = Unwritten()
    assert [unwritten.put(finished(Completed())) for _ in range(5)] == [False] * 4 + [True]
    assert unwritten.is_too_much
    rooms = []
    while batch := unwritten.next_write():
        unwritten.written(batch)
        rooms.append((unwritten.is_too_much, unwritten.has_room))
    assert rooms == [(False, False), (False, False), (False, True), (False, True), (False, True)]


@pytest.mark.parametrize(
    "large",
    [
        pytest.param(lambda: finished(Completed(), payload="x" * 10_000), id="payload"),
        pytest.param(lambda: finished(Cancelled(), payload="x" * 10_000), id="payload of a cancelled job"),
        pytest.param(lambda: finished(failed(ValueError("x" * 10_000))), id="error"),
        pytest.param(lambda: finished(Kept(retention=DAY, raw_result="x" * 10_000)), id="result"),
    ],
)
def test_too_much_is_counted_in_bytes(monkeypatch: pytest.MonkeyPatch, large: object) -> None:
    assert callable(large)
    monkeypatch.setattr(module, "MAX_UNWRITTEN_BYTES", 10_000)
    unwritten = Unwritten()
    assert unwritten.put(large())
    assert unwritten.is_too_much
    batch = unwritten.next_write()
    assert unwritten.is_too_much  # until it is written
    unwritten.written(batch)
    assert unwritten.has_room


def test_named_queues_that_the_next_writes_free() -> None:
    unwritten, _ = filled(Completed())
    assert not unwritten.frees_queues
    assert unwritten.best_queued == NO_CEILING
    for outcome, priority in (failed(ValueError()), 7), (interrupted(""), 3), (Completed(), 5):
        unwritten.put(finished(outcome, queue=1, priority=priority))
    assert unwritten.frees_queues
    assert unwritten.best_queued == 3


def test_which_writes_delete_a_job() -> None:
    unwritten, outcomes = filled(
        Completed(),
        Kept(retention=DAY),
        Expired(2.0, 1.0),
        Cancelled(),
        failed(ValueError()),
        interrupted(""),
    )
    assert {each.job.id for each in unwritten.deleting()} == {each.job.id for each in outcomes[:4]}
