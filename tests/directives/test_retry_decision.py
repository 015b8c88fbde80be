"""What becomes of an attempt by what its task raised and by the rules of `@task`. No database."""

from __future__ import annotations

import logging
import math
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from graphile_worker import GiveUp, Retry, RetryIn, Snooze, task
from graphile_worker.errors import InvalidArgumentError, TaskLoadError
from graphile_worker.tasks.call import BatchFailure
from graphile_worker.tasks.options import FailureRules, failure_rules
from graphile_worker.values.outcome import Failed, Snoozed
from graphile_worker.worker.run.outcomes import (
    GAVE_UP,
    NOT_RETRIED,
    TOO_LATE,
    outcome_of,
    outcome_of_batch,
    with_retry_rules,
)
from support.cases import looped
from support.finished import a_job

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def rules(**options: Any) -> FailureRules:
    found = failure_rules("step", options)
    assert found is not None
    return found


def decided(error: BaseException, age: float = 0.0, attempts: int = 1, **options: Any) -> Any:
    """The outcome of a job that was added `age` seconds ago."""
    job = msgspec.structs.replace(
        a_job(), raw_created_at=NOW.timestamp() - age, raw_run_at=NOW.timestamp(), attempts=attempts
    )
    outcome = outcome_of(error)
    assert isinstance(outcome, Failed | Snoozed)
    return with_retry_rules(job, outcome, rules(**options), NOW)


# -- what the task raised ----------------------------------------------------------------------------------


def test_an_ending_says_what_becomes_of_the_job() -> None:
    assert outcome_of(Snooze(60, "busy")) == Snoozed(60.0, None, "busy")
    assert outcome_of(Snooze(until=NOW)) == Snoozed(None, NOW)
    assert outcome_of(Snooze(timedelta(minutes=2))) == Snoozed(120.0)
    retried, given_up = outcome_of(RetryIn(5)), outcome_of(GiveUp("stolen"))
    assert isinstance(retried, Failed)
    assert isinstance(given_up, Failed)
    assert (retried.delay, retried.given_up, retried.message) == (5.0, None, "retry requested in 5 s")
    assert (given_up.delay, given_up.given_up, given_up.message) == (None, GAVE_UP, "stolen")


@looped(
    ("errors", "expected"),
    [
        ([Snooze(5), Snooze(7)], ("snoozed", 7.0)),
        ([Snooze(5), ValueError()], ("failed", 5.0)),
        ([Snooze(5), GiveUp("no")], (GAVE_UP, None)),
        ([RetryIn(9), Snooze(5)], ("failed", 9.0)),
        ([ValueError()], ("failed", None)),
        ([ExceptionGroup("inner", [Snooze(3)])], ("snoozed", 3.0)),
    ],
)
def test_directives_in_an_exception_group_count(errors: list[Exception], expected: Any) -> None:
    outcome = outcome_of(ExceptionGroup("of a task group", errors))
    assert isinstance(outcome, Failed | Snoozed)
    kind = "snoozed" if isinstance(outcome, Snoozed) else outcome.given_up or "failed"
    assert (kind, outcome.delay) == expected


@looped("wrong", ["60", True, math.nan, math.inf, [1], 1e12])
def test_a_delay_is_a_number_or_a_timedelta(wrong: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="delay"):
        Snooze(wrong)


def test_an_ending_needs_exactly_one_time_and_a_zone() -> None:
    for arguments in ((), (5,)):
        with pytest.raises(InvalidArgumentError, match="expected a delay or until=, and not both"):
            Snooze(*arguments, until=NOW if arguments else None)
    with pytest.raises(InvalidArgumentError, match="has no time zone"):
        RetryIn(until=datetime(2026, 1, 1))
    assert Snooze(-5).delay == 0.0


@pytest.mark.parametrize("directive", [Snooze(5, "busy"), RetryIn(until=NOW), GiveUp("no")])
def test_directives_can_be_pickled(directive: Exception) -> None:
    copy = pickle.loads(pickle.dumps(directive))
    assert (type(copy), str(copy), vars(copy)) == (type(directive), str(directive), vars(directive))


# -- batch jobs --------------------------------------------------------------------------------------------


def batch(*errors: Exception, **options: Any) -> tuple[Any, ...]:
    items = tuple(msgspec.Raw(str(number).encode()) for number in range(len(errors)))
    outcome = outcome_of_batch(BatchFailure(items, errors), rules(**options) if options else None)
    if isinstance(outcome, Snoozed):
        return "snoozed", outcome.remaining_payload, outcome.delay
    assert isinstance(outcome, Failed)
    assert outcome.batch_errors == errors
    return outcome.given_up or "failed", outcome.remaining_payload, outcome.delay


def test_each_item_of_a_batch_has_its_ending() -> None:
    error = ValueError("no")
    assert batch(Snooze(5), Snooze(9)) == ("snoozed", "[0,1]", 9.0)
    assert batch(Snooze(5), error) == ("failed", "[0,1]", 5.0)
    assert batch(GiveUp("bad"), error) == ("failed", "[1]", None)
    assert batch(GiveUp("bad"), Snooze(5)) == ("failed", "[1]", 5.0)
    assert batch(GiveUp("bad"), GiveUp("worse")) == (GAVE_UP, "[0,1]", None)
    assert batch(error, OSError(), dont_retry=ValueError) == ("failed", "[1]", None)
    assert batch(error, error, dont_retry=ValueError) == (NOT_RETRIED, "[0,1]", None)


# -- the rules of @task ------------------------------------------------------------------------------------


def test_only_some_errors_are_retried() -> None:
    network: dict[str, Any] = {"retry_on": (ConnectionError, TimeoutError)}
    assert decided(ConnectionResetError(), **network).given_up is None
    assert decided(ValueError(), **network).given_up == NOT_RETRIED
    assert decided(RetryIn(5), **network).given_up is None
    assert decided(ValueError(), dont_retry=ValueError).given_up == NOT_RETRIED
    assert decided(OSError(), dont_retry=[ValueError]).given_up is None
    both: dict[str, Any] = {"retry_on": OSError, "dont_retry": FileNotFoundError}
    assert decided(FileNotFoundError(), **both).given_up == NOT_RETRIED
    assert decided(TimeoutError(), **both).given_up is None
    assert decided(ExceptionGroup("", [OSError(), KeyError()]), **both).given_up == NOT_RETRIED
    assert decided(ExceptionGroup("", [OSError()]), **both).given_up is None


def test_the_delay_of_a_policy_and_of_a_request() -> None:
    policy: dict[str, Any] = {"retry": Retry.fixed(30)}
    assert decided(ValueError(), **policy).delay == 30.0
    assert decided(RetryIn(5), **policy).delay == 5.0
    assert decided(RetryIn(until=NOW), **policy).delay is None
    assert decided(GiveUp("no"), **policy).delay is None


def test_no_attempt_starts_after_give_up_after() -> None:
    assert decided(ValueError(), age=50, give_up_after=60).given_up is None  # 2.7 s of back-off
    assert decided(ValueError(), age=58, give_up_after=60).given_up == TOO_LATE
    assert decided(ValueError(), age=50, retry=Retry.fixed(30), give_up_after=60).given_up == TOO_LATE
    assert decided(RetryIn(30), age=50, give_up_after=60).given_up == TOO_LATE
    assert decided(Snooze(5), age=50, give_up_after=timedelta(minutes=1)) == Snoozed(5.0)
    late = decided(Snooze(until=NOW + timedelta(seconds=15), reason="busy"), age=50, give_up_after=60)
    assert late.given_up == TOO_LATE
    assert late.message == "snoozed beyond give_up_after, 1 min after the job was added; busy"


def delays(policy: Retry, count: int = 5) -> list[float]:
    return [policy.delay(attempt, ValueError()) for attempt in range(1, count + 1)]


def test_retry_policies() -> None:
    assert delays(Retry.exponential(first=1, factor=3, longest=20, jitter=0)) == [1, 3, 9, 20, 20]
    assert Retry.exponential(jitter=0, longest=600).delay(32767, ValueError()) == 600
    assert delays(Retry.fixed(timedelta(minutes=1)), 2) == [60, 60]
    assert delays(Retry.steps(1, 10, 60)) == [1, 10, 60, 60, 60]
    assert delays(Retry(lambda attempt, error: attempt * 10.0), 2) == [10, 20]
    assert delays(Retry(lambda attempt, error: timedelta(hours=isinstance(error, ValueError))), 1) == [3600]
    spread = [Retry.fixed(100, jitter=0.2).delay(1, ValueError()) for _ in range(200)]
    assert 80 <= min(spread) < 95
    assert 105 < max(spread) <= 120


def test_a_policy_that_fails_leaves_the_back_off(caplog: pytest.LogCaptureFixture) -> None:
    def broken(attempt: int, error: BaseException) -> Any:
        return "soon"

    with caplog.at_level(logging.ERROR):
        outcome = decided(ValueError(), retry=Retry(broken))
    assert (outcome.delay, outcome.given_up) == (None, None)
    assert "task step (job 1): the function of @task(retry=...) failed" in caplog.text
    assert "retry: expected seconds or a timedelta, got 'soon'" in caplog.text


@looped(
    ("options", "message"),
    [
        ({"retry": 30}, r"retry: expected Retry\.exponential\(\)"),
        ({"retry_on": "ValueError"}, "retry_on: expected classes of exceptions"),
        ({"dont_retry": [int]}, "dont_retry: expected classes of exceptions"),
        ({"give_up_after": 0}, "give_up_after: expected more than 0 seconds"),
        ({"expires": "1h"}, "expires: expected seconds or a timedelta"),
        ({"on_failure": print}, "on_failure: expected a task or its identifier"),
        ({"on_failure": "broken"}, "on_failure: a task cannot handle its own failures"),
    ],
)
def test_options_are_checked_where_the_task_is_defined(options: Any, message: str) -> None:
    with pytest.raises(TaskLoadError, match=rf"test_retry_decision\.py:\d+: @task of 'broken': {message}"):

        @task(**options)
        def broken() -> None: ...


@looped(
    "make",
    [
        lambda: Retry.exponential(first=0),
        lambda: Retry.exponential(factor=0.5),
        lambda: Retry.fixed(1, jitter=2),
        lambda: Retry.steps(),
        lambda: Retry(30),  # type: ignore[arg-type]
    ],
)
def test_policies_are_checked(make: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        make()
