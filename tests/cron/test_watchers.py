"""Watchers of adds see recurring jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from cron.conftest import Station
from graphile_worker import Job, JobSpec
from graphile_worker.hooks.events import JobsAdded
from graphile_worker.values.spec import CronJob


class Watcher:
    """Remembers what it saw."""

    def __init__(self) -> None:
        self.before_calls: list[list[str]] = []
        self.after_calls: list[tuple[object, object, object]] = []

    def before(self, specs: Sequence[JobSpec]) -> tuple[Sequence[JobSpec], object]:
        self.before_calls.append([spec.task_identifier for spec in specs])
        return [spec.replace(priority=7) for spec in specs], len(self.before_calls)

    def after(self, state: object, jobs: Sequence[Job] | None, error: BaseException | None) -> None:
        self.after_calls.append((state, jobs, error))


async def test_recurring_jobs_are_seen_one_by_one_by_the_worker_that_adds_them(
    station: Callable[..., Station],
) -> None:
    crons = [station("* * * * * a\n* * * * * b", "2021-01-01 01:00:30") for _ in range(2)]
    watchers = [Watcher(), Watcher()]
    for cron, watcher in zip(crons, watchers, strict=True):
        cron.hooks.watch_adds(watcher)
        await cron.start()
        await cron.set("01:01:01")
    for watcher, jobs in zip(watchers, (None, ()), strict=True):
        assert watcher.before_calls == [["a"], ["b"]]
        assert watcher.after_calls == [(1, jobs, None), (2, jobs, None)]
    rows = await crons[0].jobs()
    assert [(row["task"], row["priority"]) for row in rows] == [("a", 7), ("b", 7)]
    [event] = crons[0].events(JobsAdded)
    assert [(type(spec), spec.priority) for spec in event.specs] == [(CronJob, None), (CronJob, None)]
    assert not crons[1].events(JobsAdded)
    assert all("_cron" in json.loads(row["payload"]) for row in rows)
