"""Which statement writes which batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from graphile_worker.database.sql import names
from graphile_worker.database.statements.write_plan import (
    MANY,
    MISSING_IDS,
    NEAR,
    NEXT_JOBS,
    RETURNED_IDS,
    ROW_COUNT,
    VERY_MANY,
    Answer,
    Continuation,
    ErrorRecord,
    Failure,
    KeptJobs,
    Outcomes,
    WritePlan,
    WritePlanner,
    outcomes_of,
)
from graphile_worker.errors import JobInterruptedError
from graphile_worker.values.flags import FlagRules
from graphile_worker.values.outcome import COMPLETED, Completed, Finished, Interrupted, failed
from graphile_worker.values.retention import Retention
from support.finished import finished

NEXT = Continuation(tasks={1: "step", 7: "other"})
FAILURE = Failure(5, "no", "[1]")
RECORD = ErrorRecord(
    seconds=0.1,
    retention=Retention(60.0),
    keep_error_seconds=30.0,
    error_type="ValueError",
    traceback="Traceback",
    fingerprint="f",
    is_awaited=True,
)
RECORDED = Failure(6, "no", None, None, RECORD)
KEPT = KeptJobs(
    retention=Retention(60.0, payload=True), job_ids=[7], seconds=[0.2], results=["1"], awaited=[7]
)


def plan(continuation: Continuation | None = None, **outcomes: Any) -> WritePlan:
    return WritePlanner("pool-1").plan(Outcomes(**outcomes), continuation)


@pytest.mark.parametrize(
    ("outcomes", "continuation", "statement", "answer"),
    [
        (Outcomes(completed=[9]), None, "complete_job", ROW_COUNT),
        (Outcomes(completed=[9, 3]), None, "complete_jobs", MISSING_IDS),
        (Outcomes(completed=list(range(MANY - 1))), None, "complete_jobs", MISSING_IDS),
        (Outcomes(completed=list(range(MANY))), None, "complete_adjacent_jobs", MISSING_IDS),
        (
            Outcomes(completed=list(range(0, MANY * (NEAR + 1), NEAR + 1))),
            None,
            "complete_jobs",
            MISSING_IDS,
        ),
        (Outcomes(completed=list(range(VERY_MANY - 1))), None, "complete_adjacent_jobs", MISSING_IDS),
        (Outcomes(completed=list(range(VERY_MANY))), None, "complete_many_jobs", ROW_COUNT),
        (Outcomes(completed=[*range(VERY_MANY), 10_000]), None, "complete_jobs", MISSING_IDS),
        (Outcomes(completed=[9], queues=[4]), None, "complete_queued_jobs", MISSING_IDS),
        (Outcomes(completed=[9], queues=[4]), NEXT, "complete_and_take_next", NEXT_JOBS),
        (Outcomes(failed=[FAILURE]), None, "write_outcomes", NEXT_JOBS),
        (Outcomes(completed=[9], failed=[FAILURE]), None, "write_outcomes", NEXT_JOBS),
        (Outcomes(completed=[9], failed=[FAILURE], queues=[4]), NEXT, "write_outcomes", NEXT_JOBS),
        (Outcomes(kept=KEPT), None, "write_and_keep", NEXT_JOBS),
        (Outcomes(completed=[9], kept=KEPT, queues=[4]), NEXT, "write_and_keep", NEXT_JOBS),
        (Outcomes(failed=[FAILURE, RECORDED]), None, "write_and_keep", NEXT_JOBS),
        (Outcomes(returned=[9]), None, "return_jobs", RETURNED_IDS),
        (Outcomes(returned=[9], queues=[4]), None, "return_jobs", RETURNED_IDS),
    ],
)
def test_every_batch_has_its_statement(
    outcomes: Outcomes, continuation: Continuation | None, statement: str, answer: Answer
) -> None:
    chosen = WritePlanner("pool-1").plan(outcomes, continuation)
    assert (chosen.statement, chosen.answer) == (f"write/{statement}", answer)
    assert chosen.arguments[0] == "pool-1"
    assert chosen.outcomes is outcomes


def test_every_statement_has_its_batch() -> None:
    """But for those that write no outcome."""
    cases = test_every_batch_has_its_statement.pytestmark[0].args[1]  # type: ignore[attr-defined]
    known = {name.removeprefix("write/") for name in names() if name.startswith("write/") and "@" not in name}
    assert {case[2] for case in cases} == known - {
        "delete_retired_jobs",
        "mark_notified_failures",
        "release_queue",
    }


@pytest.mark.parametrize(
    ("chosen", "arguments"),
    [
        (plan(completed=[9]), (9,)),
        (plan(completed=[9, 3]), ([9, 3],)),
        (plan(completed=[*range(200, 100, -1)]), ([*range(200, 100, -1)], 101, 200)),
        (plan(completed=[9], queues=[4]), ([9],)),
        (plan(NEXT, completed=[9], queues=[4]), ([9], "{1,7}", None, None)),
        (
            plan(completed=[9], failed=[FAILURE]),
            ([9], None, None, None, [5], ["no"], ["[1]"], [None], [], []),
        ),
        (plan(returned=[9], queues=[4], note="stopped", delay=2.5), ([9], "stopped", [4], 2.5)),
    ],
)
def test_arguments_follow_the_pool_id(chosen: WritePlan, arguments: tuple[Any, ...]) -> None:
    assert chosen.arguments == ("pool-1", *arguments)


@pytest.mark.parametrize(
    ("chosen", "messages"),
    [
        (plan(failed=[FAILURE]), [["no"]]),
        (plan(failed=[RECORDED]), [["no"], ["ValueError"], ["Traceback"], None]),
        (plan(returned=[9], note="stopped"), ["stopped"]),
    ],
)
def test_a_plan_knows_where_its_texts_are(chosen: WritePlan, messages: Any) -> None:
    assert [chosen.arguments[index] for index in chosen.texts_at] == messages


def test_jobs_that_someone_waits_for_are_announced_however_they_end() -> None:
    both = plan(failed=[FAILURE, RECORDED], kept=KEPT)
    assert [RECORDED.job_id, *KEPT.awaited] in both.arguments


def test_the_largest_batches_fall_back_to_a_statement_that_lists_missing_jobs() -> None:
    chosen = plan(completed=list(range(VERY_MANY)))
    assert chosen.if_incomplete is not None
    assert chosen.if_incomplete.statement == "write/complete_adjacent_jobs"
    assert chosen.if_incomplete.arguments == chosen.arguments


def test_flags_and_time_are_passed_on() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    terms = Continuation(tasks={}, flags=FlagRules(("slow",)), now=now)
    assert plan(terms, completed=[1], queues=[2]).arguments[2:] == ("{}", ["slow"], now)
    terms = Continuation(tasks={}, flags=FlagRules())
    assert plan(terms, completed=[1], queues=[2]).arguments[2:] == ("{}", None, None)


class CountedTasks(dict[int, str]):
    """Counts how often the ids are read."""

    reads = 0

    def __iter__(self) -> Iterator[int]:
        self.reads += 1
        return super().__iter__()


def test_the_text_of_task_ids_is_made_once_per_set_of_tasks() -> None:
    planner = WritePlanner("pool-1")
    outcomes = Outcomes(completed=[1], queues=[2])

    def task_ids(tasks: Mapping[int, str]) -> Any:
        return planner.plan(outcomes, Continuation(tasks=tasks)).arguments[2]

    tasks = CountedTasks({1: "one", 2: "two"})
    assert [task_ids(tasks) for _ in range(3)] == ["{1,2}"] * 3
    assert tasks.reads == 1
    assert task_ids({3: "three"}) == "{3}"
    assert task_ids(tasks) == "{1,2}"


# -- from finished jobs ------------------------------------------------------------------------------------


def test_a_batch_is_sorted_by_outcome() -> None:
    batch = [
        finished(COMPLETED, 1),
        finished(failed(ValueError("no")), 2, queue=8),
        finished(Completed("a result"), 3, queue=9),
        finished(failed(ValueError("some"), None, "[2]"), 4),
    ]
    assert outcomes_of(batch) == Outcomes(
        completed=[1, 3],
        failed=[
            Failure(2, "ValueError: no", max_attempts=25),
            Failure(4, "ValueError: some", "[2]", max_attempts=25),
        ],
        queues=[8, 9],
    )


def interrupted(reason: str) -> list[Finished]:
    return [finished(Interrupted(JobInterruptedError(reason)), n, queue=n * 10) for n in (1, 2)]


def test_interrupted_jobs_are_returned_after_the_delay() -> None:
    assert outcomes_of(interrupted("Interrupted: stop"), delay=30.0) == Outcomes(
        returned=[1, 2], queues=[10, 20], note="Interrupted: stop", delay=30.0
    )
    assert outcomes_of(interrupted("Interrupted: stop"), with_note=False).note is None


def test_a_job_that_never_started_is_returned_at_once_and_without_a_note() -> None:
    assert outcomes_of(interrupted(""), delay=30.0) == Outcomes(returned=[1, 2], queues=[10, 20])
