"""Findings and forecasts, from facts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from graphile_worker.admin.answers import Count
from graphile_worker.admin.live.sampler import Sample
from graphile_worker.admin.overview.findings import OverviewFacts, Rates, find, forecast
from graphile_worker.admin.overview.views import before, rate_or_number
from graphile_worker.admin.tasks.queries import RunningLine, TaskRow
from graphile_worker.admin.tasks.series import RANGES, TaskSeries, Timeline
from graphile_worker.history.error_groups import ErrorGroup
from graphile_worker.values.job import Pause

NOW = datetime(2026, 11, 16, 3, 30, tzinfo=UTC)


def facts(**values: object) -> OverviewFacts:
    """A quiet queue, with what the test changes."""
    given = {
        "ready": Count(0), "scheduled": Count(0), "failed": Count(0), "running": Count(0),
        "oldest_wait": 0.0, "workers": 2,
    }  # fmt: skip
    of_sample = {name: values.pop(name) for name in list(values) if name in given or name == "unreachable"}
    sample = Sample(at=NOW, **(given | of_sample))  # type: ignore[arg-type]
    hour = Timeline(RANGES["1h"], RANGES["1h"].start(NOW), NOW)
    return OverviewFacts(sample, hour, Rates(completed=312.0), **values)  # type: ignore[arg-type]


def series(failed: list[float], completed: float = 10.0) -> TaskSeries:
    before = 60 - len(failed)
    return TaskSeries([completed] * 60, [0.0] * before + failed, [1.0] * 60)


def title(found: OverviewFacts) -> str:
    return find(found)[0].title


def test_all_is_well() -> None:
    assert title(facts()) == "All well: 312/min, nothing waits"
    waiting = facts(ready=Count(4), oldest_wait=1.6)
    assert title(waiting) == "All well: 312/min, nothing waits longer than 1.6 s"


def test_failures_say_since_when() -> None:
    given = facts()
    given.hour.tasks["send_email"] = series([0, 0, 0, 0] + [40.0] * 28)
    finding = find(given)[0]
    assert finding.level == "bad"
    assert finding.title == "send_email: 1,120 failures in 28 minutes"
    assert finding.since == given.hour.start + timedelta(minutes=32)


def test_failures_that_are_over_or_rare_are_no_finding() -> None:
    given = facts()
    given.hour.tasks["over"] = series([40.0] * 20 + [0.0] * 11)
    given.hour.tasks["rare"] = series([0.2] * 30, completed=100)
    assert title(given).startswith("All well")


def test_the_worst_comes_first() -> None:
    given = facts(
        ready=Count(9), oldest_wait=700.0, unreachable=1, usual_wait=2.0,
        pauses=[Pause(queue_name="invoices")],
        tasks=[TaskRow(name="lost", ready=Count(2), scheduled=Count(0), failed=Count(0), is_known=False)],
    )  # fmt: skip
    found = find(given)
    assert [finding.level for finding in found] == ["bad", "warn", "warn", "warn"]
    assert found[0].title.startswith("A job has been ready for 11 min 40 s")
    assert "Paused: queue invoices" in [finding.title for finding in found]
    assert "No running worker has the task lost" in [finding.title for finding in found]


def test_a_wait_that_is_usual_is_no_finding() -> None:
    assert title(facts(ready=Count(9), oldest_wait=300.0, usual_wait=200.0)).startswith("All well")


def test_jobs_that_run_much_longer_than_usual_are_named() -> None:
    line = RunningLine(
        job_id=7, task="report", started_at=NOW - timedelta(hours=2), worker="a", usual=30.0, is_long=True
    )
    given = facts()
    given.running = [line]
    found = find(given)[0]
    assert found.title == "1 job runs much longer than usual"
    assert "Job 7 of report" in found.detail


def test_every_task_paused() -> None:
    assert title(facts(pauses=[Pause(reason="bank")])) == "Every task is paused"


@pytest.mark.parametrize(
    ("ready", "added", "completed", "busy", "slots", "text"),
    [
        (1400, 100, 200, 4, 4, "empty in 14 min"),
        (1400, 140, 100, 4, 4, "grows by 40/min: 2 more slots would hold it"),
        (1400, 140, 100, 1, 4, "grows by 40/min, though slots are free"),
        (1400, 100, 101, 4, 4, "steady"),
        (3, 140, 100, 1, 4, "nothing piles up"),
        (3, 10, 100, 1, 4, "nothing piles up"),
        (1400, 140, 100, 0, None, "grows by 40/min"),
    ],
)
def test_forecasts(
    ready: int, added: float, completed: float, busy: float, slots: int | None, text: str
) -> None:
    found = forecast(ready=ready, added=added, completed=completed, run_time=3.0, busy=busy, slots=slots)
    assert found is not None
    assert found.text == text


def test_without_rates_there_is_no_forecast() -> None:
    assert forecast(ready=1, added=None, completed=1.0, run_time=1, busy=0, slots=1) is None


def test_no_worker_although_there_were_some() -> None:
    """The queue is empty, because without workers no recurring job is added: that is not well."""
    given = facts(workers=0, last_work=NOW - timedelta(minutes=25), schedules=5)
    given.rates = Rates(completed=0.0)
    found = find(given)[0]
    assert (found.level, found.title) == ("bad", "No worker is running")
    assert "The last job ran 25 min ago." in found.detail
    assert "5 recurring jobs are known, and nobody adds their jobs." in found.detail


def test_no_worker_a_moment_after_the_last_one_was_killed() -> None:
    """Jobs that they completed or have locked are no sign of workers of other runtimes."""
    given = facts(workers=0, unreachable=3, running=Count(12), last_work=NOW - timedelta(minutes=3))
    given.hour.tasks["resize"] = TaskSeries([300.0] * 57 + [100.0, 0.0, 0.0], [0.0] * 60, [1.0] * 60)
    given.rates = Rates(completed=220.0)
    (found,) = find(given)
    assert (found.level, found.title) == ("bad", "No worker is running")
    assert "3 workers do not answer, and nobody recovers their jobs." in found.detail
    given.rates = Rates(completed=400.0)  # of other runtimes, too
    assert "No worker is running" not in [each.title for each in find(given)]


def test_no_worker_while_one_is_replaced() -> None:
    given = facts(workers=0, last_work=NOW - timedelta(seconds=70))
    given.hour.tasks["resize"] = TaskSeries([300.0] * 60, [0.0] * 60, [1.0] * 60)
    given.rates = Rates(completed=300.0)
    assert [(each.level, each.title) for each in find(given)] == [("warn", "No worker is running")]
    given.sample = msgspec.structs.replace(given.sample, ready=Count(9), oldest_wait=70.0)
    assert find(given)[0].level == "bad"


def test_recurring_jobs_of_nobody() -> None:
    """Node workers may be idle; a day without a recurring job is suspicious."""
    given = facts(workers=0, schedules=2, last_scheduled=NOW - timedelta(days=2))
    given.rates = Rates(completed=0.0)
    assert find(given)[0].level == "warn"
    given.last_scheduled = NOW - timedelta(hours=1)
    assert find(given)[0].level == "idle"


def test_a_fresh_installation_is_neither_well_nor_wrong() -> None:
    given = facts(workers=0)
    given.rates = Rates()
    found = find(given)
    assert [(each.level, each.title) for each in found] == [("idle", "No worker has run yet")]
    given.rates = Rates(completed=10.0)  # of other runtimes
    assert title(given).startswith("All well")


def test_recurring_jobs_that_are_overdue() -> None:
    late = [("nightly", NOW - timedelta(minutes=10))]
    found = find(facts(late=late))[0]
    assert (found.level, found.title) == ("warn", "1 recurring job is overdue: nightly")
    late = [(name, NOW - timedelta(days=2)) for name in "abcd"]
    found = find(facts(late=late))[0]
    assert (found.level, found.title) == ("bad", "4 recurring jobs are overdue: a, b, c and 1 more")


def test_steady_work_that_has_stopped() -> None:
    given = facts()
    given.hour.tasks["resize"] = TaskSeries([300.0] * 55 + [0.0] * 5, [0.0] * 60, [1.0] * 60)
    found = find(given)[0]
    assert found.level == "warn"
    assert found.title == "No job has completed for 5 minutes; before, 300 a minute did"
    given.hour.tasks["resize"] = TaskSeries([300.0] * 20 + [0.0] * 40, [0.0] * 60, [1.0] * 60)
    assert title(given).startswith("All well")  # a batch that ended long ago


def test_an_error_that_has_just_begun() -> None:
    began = NOW - timedelta(seconds=20)
    group = ErrorGroup("f", "charge", "ValueError", "x", "", began, NOW, 900, 900, 1, None, None)
    found = find(facts(groups=[group]))[0]
    assert (found.level, found.title, found.path) == (
        "bad", "charge: 900 failures, a new error", "/failures/f",
    )  # fmt: skip
    group = msgspec.structs.replace(group, errors=2)
    assert title(facts(groups=[group])).startswith("All well")


def test_few_attempts_make_no_rate() -> None:
    assert rate_or_number(0.6, [0.0] * 57 + [1.0] * 3) == "3 in 1 h"
    assert rate_or_number(0.0, [0.0] * 60) == "0 in 1 h"
    assert rate_or_number(40.0, [40.0] * 60) == "40 /min"
    assert rate_or_number(None, []) == "—"
    assert (before(0.6), before(0.0), before(12.0)) == ("", "0 /min an hour ago", "12 /min an hour ago")
