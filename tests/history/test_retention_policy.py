"""What is kept: by job, by task, by worker."""

from __future__ import annotations

from datetime import timedelta

import pytest

from graphile_worker import task
from graphile_worker.errors import ConfigError, InvalidArgumentError, TaskLoadError
from graphile_worker.options import WorkerOptions
from graphile_worker.tasks.options import task_keep
from graphile_worker.values.retention import Retention, RetentionPolicy, is_awaited, keep_flags
from support.cases import looped

WEEK, DAY = 604_800.0, 86_400.0
DEFAULT = Retention(WEEK)


@pytest.mark.parametrize(
    ("mode", "completed", "failed"),
    [("none", None, None), ("failed", None, DEFAULT), ("all", DEFAULT, DEFAULT)],
)
def test_a_worker_keeps_by_its_mode(mode: str, completed: Retention | None, failed: Retention | None) -> None:
    retention_policy = RetentionPolicy(mode, default=DEFAULT)
    assert retention_policy.for_completed("step", None) == completed
    assert retention_policy.for_failed("step", None) == failed
    assert retention_policy.keeps_completed is (mode == "all")


def test_a_task_decides_for_its_jobs() -> None:
    retention_policy = RetentionPolicy(
        "failed", default=DEFAULT, tasks={"kept": Retention(DAY), "secret": None}
    )
    assert (
        retention_policy.for_completed("kept", None)
        == retention_policy.for_failed("kept", None)
        == Retention(DAY)
    )
    assert retention_policy.for_failed("secret", None) is None
    assert retention_policy.keeps_completed
    assert retention_policy.every() == {DEFAULT, Retention(DAY)}


@looped(
    ("flags", "expected"),
    [
        ('{"py:keep": true}', DEFAULT),
        ('{"py:keep=60": true}', Retention(3600.0)),
        ('{"py:keep": true, "py:keep_payload": true}', Retention(WEEK, payload=True)),
        ('{"py:keep=often": true}', DEFAULT),
        ('{"py:keep=-1": true}', DEFAULT),
        ('{"py:keep=nan": true}', DEFAULT),
        ('{"other": true}', None),
        (None, None),
    ],
)
def test_a_job_decides_for_itself(flags: str | None, expected: Retention | None) -> None:
    assert RetentionPolicy("none", default=DEFAULT).for_completed("step", flags) == expected
    assert is_awaited(flags) is (expected is not None)


def test_a_job_overrides_a_task_that_keeps_nothing() -> None:
    retention_policy = RetentionPolicy("none", default=DEFAULT, tasks={"secret": None})
    assert retention_policy.for_failed("secret", '{"py:keep": true}') == DEFAULT


def test_flags_of_a_kept_job() -> None:
    assert keep_flags(False) == []
    assert keep_flags(True) == ["py:keep"]
    assert keep_flags(timedelta(hours=1), payload=True) == ["py:keep=3600", "py:keep_payload"]


@pytest.mark.parametrize("keep", [timedelta(), timedelta(days=-1), timedelta(days=4000)])
def test_a_time_out_of_range_is_refused(keep: timedelta) -> None:
    with pytest.raises(InvalidArgumentError, match="keep: expected True, False or a timedelta"):
        keep_flags(keep)


def test_a_task_says_how_it_is_kept() -> None:
    @task(keep=timedelta(days=1), keep_payload=True, max_attempts=3)
    async def step(payload: dict[str, int]) -> None: ...

    assert step.rules.keep is not None
    assert step.rules.keep.resolved(WEEK) == Retention(DAY, payload=True)
    assert dict(step.spec_defaults) == {"max_attempts": 3}
    assert step.with_identifier("other").rules.keep == step.rules.keep
    assert task_keep({"keep": True}).resolved(WEEK) == DEFAULT  # type: ignore[union-attr]
    assert task_keep({"keep": False}).resolved(WEEK) is None  # type: ignore[union-attr]
    assert task_keep({}) is None


def test_a_payload_without_an_end_is_refused() -> None:
    with pytest.raises(TaskLoadError, match="keep_payload: has no effect without keep=True"):

        @task(keep_payload=True)
        async def step() -> None: ...


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"history": "some"}, "history: expected one of none, failed, all; got 'some'"),
        ({"history_retention": 0}, "history_retention: must be more than 0"),
        ({"error_retention": timedelta(days=4000)}, "error_retention: must be at most 3660 days"),
    ],
)
def test_options_are_checked(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WorkerOptions.from_mapping(values)
