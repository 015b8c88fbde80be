"""Recurring jobs pass the `before_add` interceptors, and are still added exactly once."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from cron.conftest import Station
from cron.reference import at
from graphile_worker.errors import JobRefusedError
from graphile_worker.hooks.events import CronBackfill, CronSchedule, CronScheduled, JobsAdded
from graphile_worker.values.spec import CronJob, JobSpec

MakeStation = Callable[..., Station]
TWO = "* * * * * a\n* * * * * b"


async def added(cron: Station) -> list[tuple[str, Any]]:
    return [(job["task"], json.loads(job["payload"])) for job in await cron.jobs()]


async def test_an_interceptor_may_change_a_job(station: MakeStation) -> None:
    cron = station("* * * * * a ?id=mine", "2021-01-01 01:00:30")
    seen: list[JobSpec] = []

    @cron.hooks.before_add
    async def change(spec: JobSpec) -> JobSpec:
        seen.append(spec)
        await asyncio.sleep(0)
        return spec.replace(payload={"mine": 1}, priority=5, flags=["f", 'o"dd'], queue_name="q")

    await cron.start()
    await cron.set("01:01:01")
    [spec] = seen
    assert isinstance(spec, CronJob)
    assert (spec.identifier, spec.task_identifier, spec.run_at) == ("mine", "a", at("2021-01-01 01:01"))
    [job] = await cron.jobs()
    assert (job["task"], json.loads(job["payload"]), job["priority"]) == ("a", {"mine": 1}, 5)
    assert (json.loads(job["flags"]), job["run_at"]) == ({"f": True, 'o"dd': True}, at("2021-01-01 01:01"))
    assert job["job_queue_id"] is not None
    [event] = cron.events(CronScheduled)
    assert [job.priority for job in event.jobs_and_identifiers] == [5]


async def test_another_spec_may_take_its_place(station: MakeStation) -> None:
    cron = station("* * * * * a", "2021-01-01 01:00:30")
    cron.hooks.before_add(lambda spec: JobSpec("other", [1], job_key="k"))
    await cron.start()
    for minute in (1, 2):
        await cron.set(f"01:0{minute}:01")
    [job] = await cron.jobs()
    assert (job["task"], json.loads(job["payload"]), job["key"]) == ("other", [1, 1], "k")
    # A spec without a run_at, like one that never had any, is due at the minute it was added for.
    assert job["run_at"] == at("2021-01-01 01:02")
    row = await cron.known("a")
    assert row is not None
    assert row["last_execution"] == at("2021-01-01 01:02")


async def test_a_delay_counts_from_now(station: MakeStation) -> None:
    cron = station("* * * * * a", "2021-01-01 01:00:30")
    cron.hooks.before_add(lambda spec: spec.replace(run_at=timedelta(hours=1)))
    await cron.start()
    await cron.set("01:01:01")
    [job] = await cron.jobs()
    assert job["run_at"] - job["created_at"] == timedelta(hours=1)


async def test_a_refused_job_is_logged_and_not_retried(
    station: MakeStation, caplog: pytest.LogCaptureFixture
) -> None:
    cron = station(TWO, "2021-01-01 01:00:30")

    @cron.hooks.before_add
    def refuse(spec: JobSpec) -> None:
        if spec.task_identifier == "a":
            raise JobRefusedError("not today")

    await cron.start()
    with caplog.at_level(logging.WARNING):
        await cron.set("01:01:01")
    assert [task for task, _ in await added(cron)] == ["b"]
    [record] = caplog.records
    assert record.getMessage() == (
        "recurring job 'a' was refused for 2021-01-01 01:01:00+00:00 and is not added: not today"
    )
    row = await cron.known("a")
    assert row is not None
    assert row["last_execution"] == at("2021-01-01 01:01")
    await cron.scheduler.stop()

    later = station("* * * * * a ?fill=1h", "2021-01-01 01:01:30")
    await later.start()
    assert later.events(CronBackfill) == []
    assert [task for task, _ in await added(later)] == ["b"]


async def test_a_minute_of_refused_jobs_only_has_no_events(station: MakeStation) -> None:
    cron = station(TWO, "2021-01-01 01:00:30")

    @cron.hooks.before_add
    def refuse(spec: JobSpec) -> None:
        raise JobRefusedError("no")

    await cron.start()
    await cron.set("01:02:01")
    assert await cron.jobs() == []
    assert cron.events(CronSchedule) == cron.events(CronScheduled) == cron.events(JobsAdded) == []


@pytest.mark.parametrize("kind", ["raises", "bad payload", "no spec"])
async def test_a_failing_interceptor_does_not_hold_up_other_items(
    station: MakeStation, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    cron = station(TWO, "2021-01-01 01:00:30")

    @cron.hooks.before_add
    def fail(spec: JobSpec) -> Any:
        if spec.task_identifier == "b":
            return None
        if kind == "raises":
            raise RuntimeError("a bug")
        return spec.replace(payload=object()) if kind == "bad payload" else "no spec"

    await cron.start()
    with caplog.at_level(logging.WARNING):
        await cron.set("01:01:01")
    assert [task for task, _ in await added(cron)] == ["b"]
    [record] = caplog.records
    assert record.getMessage().startswith("recurring job 'a' is not added for 2021-01-01 01:01:00+00:00: ")
    assert record.exc_info is not None


async def test_missed_runs_pass_the_interceptors(station: MakeStation) -> None:
    cron = station("* * * * * a ?fill=5m", "2021-01-01 01:05:30")
    await cron.learn("a", at("2021-01-01 00:00"), at("2021-01-01 01:01"))

    @cron.hooks.before_add
    def even_minutes(spec: JobSpec) -> None:
        if spec.payload["_cron"]["ts"][15] in "13579":
            raise JobRefusedError("odd")

    await cron.start()
    assert [job["run_at"].minute for job in await cron.jobs()] == [2, 4]
    assert [event.timestamp.minute for event in cron.events(CronBackfill)] == [2, 4]
    [event] = cron.events(JobsAdded)
    assert [spec.run_at for spec in event.specs] == [job["run_at"] for job in await cron.jobs()]
    assert event.source == "crontab"
    row = await cron.known("a")
    assert row is not None
    assert row["last_execution"] == at("2021-01-01 01:05")


async def test_the_first_scheduler_decides(station: MakeStation) -> None:
    """All three call their interceptors; one job is added, and one scheduler reports it."""
    crons = [station("* * * * * a", "2021-01-01 01:00:30") for _ in range(3)]
    asked = []
    for number, cron in enumerate(crons):

        def stamp(spec: JobSpec, number: int = number) -> JobSpec:
            asked.append(number)
            return spec.replace(payload={"by": number})

        cron.hooks.before_add(stamp)
        await cron.start()
    await asyncio.gather(*(cron.set("01:01:01") for cron in crons))
    assert sorted(asked) == [0, 1, 2]
    [(_, payload)] = await added(crons[0])
    events = {number: cron.events(JobsAdded) for number, cron in enumerate(crons)}
    assert [number for number, seen in events.items() if seen] == [payload["by"]]
