"""The scheduler on a real database, with a clock that is moved by hand."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from cron.conftest import Station
from cron.reference import at
from graphile_worker.cron import CronItem, CronScheduler, parse_cron_items
from graphile_worker.errors import CrontabError
from graphile_worker.hooks.events import (
    CronBackfill,
    CronOverdueTimer,
    CronPrematureTimer,
    CronSchedule,
    CronScheduled,
    CronStarted,
    CronStarting,
)
from graphile_worker.tasks import task as make_task
from graphile_worker.tasks.registry import build_registry
from graphile_worker.values.schema_name import SchemaName

MakeStation = Callable[..., Station]
FOUR_HOURLY = "0 */4 * * * my_task"


@pytest.mark.compat("CT-1", "TIME-3")
async def test_a_job_is_added_when_its_minute_comes(station: MakeStation) -> None:
    cron = station(FOUR_HOURLY)
    await cron.start()
    for time, count in [("03:00:01", 0), ("03:59:50", 0), ("03:59:55", 0), ("04:00:01", 1)]:
        await cron.set(time)
        assert len(cron.events(CronSchedule)) == count
    (event,) = cron.events(CronSchedule)
    assert event.timestamp == at("2021-01-01 04:00")
    assert [job.task_identifier for job in event.jobs_and_identifiers] == ["my_task"]
    assert [event.timestamp for event in cron.events(CronScheduled)] == [at("2021-01-01 04:00")]
    (job,) = await cron.jobs()
    assert (job["task"], job["run_at"]) == ("my_task", at("2021-01-01 04:00"))
    assert json.loads(job["payload"]) == {"_cron": {"ts": "2021-01-01T04:00:00.000Z", "backfilled": False}}


@pytest.mark.compat("CT-2", "CS8")
async def test_nothing_is_added_twice_when_the_clock_goes_back(station: MakeStation) -> None:
    cron = station(FOUR_HOURLY)
    await cron.start()
    for time in ("04:00:01", "03:00:01", "03:59:59", "04:00:01", "04:00:59"):
        await cron.set(time)
        assert len(cron.events(CronSchedule)) == 1
    assert len(await cron.jobs()) == 1


async def test_a_clock_that_is_put_back_and_forward_again_delays_nothing(station: MakeStation) -> None:
    cron = station("* * * * * often")
    await cron.start()
    await cron.set("01:01:01")
    cron.clock.jump(timedelta(hours=-3))
    await cron.clock.advance(61)
    cron.clock.jump(timedelta(hours=3))
    await cron.clock.advance(61)
    assert [job["run_at"].minute for job in await cron.jobs()] == [0, 1, 2, 3]


@pytest.mark.compat("CT-3", "CS3")
async def test_a_timer_that_rings_too_early_is_set_again(station: MakeStation) -> None:
    cron = station(FOUR_HOURLY)
    await cron.start()
    await cron.set("03:59:30")
    for _ in range(10):
        await cron.set("03:59:00")
        await cron.set("03:59:30")
    assert cron.events(CronSchedule) == []
    premature = cron.events(CronPrematureTimer)
    assert premature
    assert premature[0].expected_timestamp == at("2021-01-01 04:00")
    assert premature[0].current_timestamp == at("2021-01-01 03:59")
    await cron.set("04:00:01")
    assert len(cron.events(CronSchedule)) == 1


@pytest.mark.compat("CT-4", "CS6")
async def test_with_a_job_key_a_waiting_job_is_updated(station: MakeStation) -> None:
    cron = station("0 */4 * * * my_task ?jobKey=foo")
    await cron.start()
    await cron.set("04:00:01")
    (first,) = await cron.jobs()
    await cron.set("08:00:01")
    (second,) = await cron.jobs()
    assert (first["id"], first["key"], second["key"]) == (second["id"], "foo", "foo")
    assert json.loads(first["payload"])["_cron"]["ts"] == "2021-01-01T04:00:00.000Z"
    assert json.loads(second["payload"])["_cron"]["ts"] == "2021-01-01T08:00:00.000Z"
    assert second["revision"] == first["revision"] + 1
    assert len(cron.events(CronSchedule)) == 2


@pytest.mark.compat("CRN-1", "CS1")
async def test_a_new_item_is_noted_down_and_not_backfilled(station: MakeStation) -> None:
    cron = station("0 */4 * * * do_it ?fill=1d")
    await cron.start()
    await cron.scheduler.stop()
    row = await cron.known("do_it")
    assert row is not None
    assert (row["known_since"], row["last_execution"]) == (at("2021-01-01 01:00"), None)
    assert await cron.jobs() == []
    assert [type(event) for event in cron.seen] == [CronStarting, CronStarted]


@pytest.mark.compat("CRN-2", "CRN-3", "CS2")
@pytest.mark.parametrize(("hours", "count"), [(5, 1), (25, 6)])
async def test_missed_runs_are_backfilled_in_order(station: MakeStation, hours: int, count: int) -> None:
    cron = station("0 */4 * * * do_it ?fill=1d {x:1}", "2021-01-15 01:00")
    now = cron.clock.now()
    await cron.learn("do_it", now - timedelta(days=14), now - timedelta(hours=hours))
    await cron.start()
    assert cron.is_started
    row = await cron.known("do_it")
    assert row is not None
    assert (row["known_since"], row["last_execution"]) == (now - timedelta(days=14), at("2021-01-15 00:00"))
    jobs = await cron.jobs()
    assert len(jobs) == count
    assert [job["run_at"] for job in jobs] == sorted(job["run_at"] for job in jobs)
    assert {job["task"] for job in jobs} == {"do_it"}
    last = '{"x":1,"_cron":{"ts":"2021-01-15T00:00:00.000Z","backfilled":true}}'
    assert jobs[-1]["payload"] == last
    events = cron.events(CronBackfill)
    assert [event.timestamp for event in events] == [job["run_at"] for job in jobs]
    assert [item.identifier for item in events[0].items_to_backfill] == ["do_it"]
    assert events[0].items_to_backfill[0].last_execution == now - timedelta(hours=hours)
    assert [type(event) for event in (cron.seen[0], cron.seen[-1])] == [CronStarting, CronStarted]


@pytest.mark.compat("CS3")
async def test_a_start_on_the_minute_counts(station: MakeStation) -> None:
    cron = station("* * * * * a")
    await cron.start()
    await cron.clock.advance(0.5)
    assert [job["run_at"] for job in await cron.jobs()] == [at("2021-01-01 01:00")]


@pytest.mark.compat("CS3")
async def test_minutes_that_were_slept_through_are_caught_up_one_by_one(station: MakeStation) -> None:
    cron = station("*/10 * * * * a\n0 * * * * b", "2021-01-01 01:00:30")
    await cron.start()
    await cron.set("02:10:30")
    assert [(f"{job['run_at']:%H:%M}", job["task"]) for job in await cron.jobs()] == [
        ("01:10", "a"),
        ("01:20", "a"),
        ("01:30", "a"),
        ("01:40", "a"),
        ("01:50", "a"),
        ("02:00", "a"),
        ("02:00", "b"),
        ("02:10", "a"),
    ]
    assert all(not json.loads(job["payload"])["_cron"]["backfilled"] for job in await cron.jobs())
    (overdue,) = cron.events(CronOverdueTimer)
    assert (overdue.expected_timestamp, overdue.current_timestamp) == (
        at("2021-01-01 01:01"),
        at("2021-01-01 02:10"),
    )
    assert len(cron.events(CronSchedule)) == len(cron.events(CronScheduled)) == 7


async def test_a_clock_that_is_put_forward_by_years_adds_a_week_of_jobs_and_warns(
    station: MakeStation, caplog: pytest.LogCaptureFixture
) -> None:
    cron = station("0 12 * * * a\n0 12 * * * b ?fill=2w")
    await cron.start()
    await cron.set("2031-06-01 12:00:30")
    jobs = await cron.jobs()
    for task, weeks in (("a", 1), ("b", 2)):
        times = [job["run_at"] for job in jobs if job["task"] == task]
        assert len(times) == weeks * 7 + 1
        assert times[0] == at("2031-06-01 12:00") - timedelta(weeks=weeks)
        assert times[-1] == at("2031-06-01 12:00")
    (warning,) = caplog.records
    assert "older ones are skipped" in warning.getMessage()
    await cron.set("2031-06-02 12:00:30")
    assert len(await cron.jobs()) == len(jobs) + 2


async def test_a_process_that_slept_for_days_leaves_nothing_out(
    station: MakeStation, caplog: pytest.LogCaptureFixture
) -> None:
    cron = station("0 0 * * * a")
    await cron.start()
    await cron.set("2021-01-07 23:00:01")
    assert len(await cron.jobs()) == 6
    assert not caplog.records


async def test_a_clock_that_is_put_back_by_years_is_warned_about_once(
    station: MakeStation, caplog: pytest.LogCaptureFixture
) -> None:
    cron = station("* * * * * a")
    await cron.start()
    for time in ("2020-06-01 12:00:30", "2020-06-01 12:02:30", "2020-06-01 12:04:30"):
        await cron.set(time)
    assert len(cron.events(CronPrematureTimer)) > 1
    (warning,) = caplog.records
    assert "the clock was set back to 2020-06-01" in warning.getMessage()


async def test_an_item_that_ran_in_the_future_is_warned_about(
    station: MakeStation, caplog: pytest.LogCaptureFixture
) -> None:
    cron = station("* * * * * a\n* * * * * b")
    await cron.learn("a", at("2021-01-01 00:00"), at("2031-01-01 00:00"))
    await cron.learn("b", at("2021-01-01 00:00"), at("2021-01-01 01:02"))  # another worker is a bit ahead
    await cron.start()
    (warning,) = caplog.records
    assert "recurring job 'a' was last added for 2031-01-01" in warning.getMessage()
    assert '"graphile_worker"._private_known_crontabs' in warning.getMessage()


@pytest.mark.compat("CS4")
async def test_two_schedulers_add_each_job_once_and_equal_or_older_minutes_do_nothing(
    station: MakeStation,
) -> None:
    first, second = station("*/5 * * * * a"), station("*/5 * * * * a")
    await asyncio.gather(first.start(), second.start())
    for time in ("01:05:01", "01:10:01", "01:20:01"):
        await asyncio.gather(first.set(time), second.set(time))
    late = station("*/5 * * * * a")
    await late.start()
    await late.set("01:15:01")
    assert len(late.events(CronScheduled)) == 4
    assert [f"{job['run_at']:%H:%M}" for job in await first.jobs()] == [
        "01:00",
        "01:05",
        "01:10",
        "01:15",
        "01:20",
    ]


@pytest.mark.compat("CS4")
async def test_jobs_of_one_minute_are_added_in_the_order_of_the_items_with_all_options(
    station: MakeStation,
) -> None:
    names = ["zebra", "ant", "mole", "bee"]
    lines = [f"* * * * * {name} ?queue=q_{name}&max=3&priority={n}" for n, name in enumerate(names)]
    cron = station("\n".join(lines))
    await cron.start()
    await cron.clock.advance(1)
    jobs = await cron.jobs()
    assert [job["task"] for job in jobs] == names
    assert [(job["priority"], job["max_attempts"]) for job in jobs] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    queues = await cron.pool.fetch(
        "select queue_name from graphile_worker._private_job_queues as queues"
        " join graphile_worker._private_jobs as jobs on jobs.job_queue_id = queues.id order by jobs.id"
    )
    assert [row["queue_name"] for row in queues] == [f"q_{name}" for name in names]


@pytest.mark.compat("CS4")
async def test_a_row_that_vanished_is_made_again(station: MakeStation) -> None:
    cron = station("* * * * * a", "2021-01-01 01:00:30")
    await cron.start()
    await cron.pool.execute("delete from graphile_worker._private_known_crontabs")
    await cron.set("01:01:01")
    row = await cron.known("a")
    assert row is not None
    assert row["known_since"] == row["last_execution"] == at("2021-01-01 01:01")
    assert len(await cron.jobs()) == 1


async def test_items_that_share_an_identifier_are_refused(station: MakeStation) -> None:
    items = parse_cron_items([CronItem("a", "* * * * *"), CronItem("b", "* * * * *", identifier="a")])
    with pytest.raises(CrontabError, match=r"item 1 .*identifier 'a' is already used in item 0 of"):
        station(items)


async def test_tasks_that_are_not_here_are_named_in_one_warning_and_their_jobs_are_added(
    station: MakeStation, caplog: pytest.LogCaptureFixture
) -> None:
    crontab = "* * * * * here\n* * * * * elsewhere\n8 * * * * far\n7 * * * * far ?id=further"
    cron = station(crontab, tasks=build_registry({"here": lambda: None}))
    await cron.start()
    await cron.clock.advance(1)
    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    assert warning.getMessage().endswith("does not have their tasks: 'elsewhere', 'far'")
    assert [job["task"] for job in await cron.jobs()] == ["here", "elsewhere"]


async def test_a_zone_of_an_item_moves_its_runs_and_not_its_timestamp(station: MakeStation) -> None:
    cron = station("30 2 * * * a ?tz=Europe/Berlin", "2026-03-28 12:00")
    await cron.start()
    await cron.set("2026-03-30 12:00")
    assert [json.loads(job["payload"])["_cron"]["ts"] for job in await cron.jobs()] == [
        "2026-03-29T01:00:00.000Z",
        "2026-03-30T00:30:00.000Z",
    ]


class Trouble:
    """Connections that can be cut, before a statement or after it."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self.refusals = 0
        self.losses = 0

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Any]:
        if self.refusals:
            self.refusals -= 1
            raise ConnectionRefusedError("no server here")
        async with self.pool.acquire() as connection:
            yield connection
            if self.losses:
                self.losses -= 1
                raise ConnectionResetError("the answer got lost")


@pytest.mark.compat("CS7", "RP5")
async def test_a_database_that_is_down_at_start_is_retried_with_back_off(
    station: MakeStation, pool: Any, caplog: pytest.LogCaptureFixture
) -> None:
    trouble = Trouble(pool)
    trouble.refusals = 3
    cron = station("* * * * * a", "2021-01-01 01:00:30", acquire=trouble.acquire, jitter=lambda: 0.5)
    await cron.start()
    for rest in (0.2, 0.3, 0.45):
        assert not cron.is_started
        await cron.clock.advance(rest - 0.01)
        assert not cron.is_started
        await cron.clock.advance(0.01)
    assert cron.is_started
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 3
    assert "retrying in 200 ms: no server here" in caplog.records[0].message
    assert len(cron.events(CronStarting)) == 4


@pytest.mark.compat("CS7")
@pytest.mark.parametrize("fill", ["", " ?fill=1d"])
@pytest.mark.parametrize("kind", ["refusals", "losses"])
async def test_a_tick_that_failed_is_made_up_for_once_and_the_rest_begins_small_again(
    station: MakeStation, pool: Any, kind: str, fill: str
) -> None:
    trouble = Trouble(pool)
    cron = station(f"* * * * * a{fill}", "2021-01-01 01:00:30", acquire=trouble.acquire, jitter=lambda: 0.5)
    await cron.start()
    await cron.set("01:01:01")
    for minute in (2, 3):
        setattr(trouble, kind, 1)
        await cron.set(f"01:0{minute}:01")
        await cron.clock.advance(0.2)
        await cron.clock.advance(0.2)
    await cron.set("01:04:01")
    assert [f"{job['run_at']:%H:%M}" for job in await cron.jobs()] == ["01:01", "01:02", "01:03", "01:04"]


@pytest.mark.compat("CS7")
async def test_minutes_that_passed_while_the_database_was_away_are_made_up_for(
    station: MakeStation, pool: Any
) -> None:
    trouble = Trouble(pool)
    cron = station("* * * * * a\n* * * * * b ?fill=1m", "2021-01-01 01:00:30", acquire=trouble.acquire)
    await cron.start()
    trouble.refusals = 1
    await cron.set("01:01:01")
    trouble.refusals = 1
    await cron.set("01:05:30")
    await cron.set("01:06:30")
    await cron.set("01:07:30")
    jobs = [(job["task"], f"{job['run_at']:%H:%M}") for job in await cron.jobs()]
    minutes = ["01:01", "01:02", "01:03", "01:04", "01:05", "01:06", "01:07"]
    assert sorted(jobs) == [(task, minute) for task in "ab" for minute in minutes]


@pytest.mark.compat("CS7")
async def test_a_terminated_connection_costs_no_run(station: MakeStation) -> None:
    cron = station("* * * * * a", "2021-01-01 01:00:30")
    await cron.start()
    async with cron.pool.acquire() as connection:
        idle = await connection.fetch(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
    assert idle is not None
    for time in ("01:01:01", "01:01:30", "01:02:01", "01:02:30"):
        await cron.set(time)
    assert [f"{job['run_at']:%H:%M}" for job in await cron.jobs()] == ["01:01", "01:02"]


@pytest.mark.compat("CS9")
async def test_stopping_ends_the_timer_and_leaves_what_is_known(station: MakeStation) -> None:
    cron = station("* * * * * a")
    await cron.start()
    await cron.scheduler.stop()
    await cron.scheduler.wait()
    assert cron.clock.sleeping == 0
    await cron.clock.advance(3600)
    assert await cron.jobs() == []
    other = station("* * * * * b")
    await other.start()
    assert await other.known("a") is not None


async def test_stopping_lets_a_statement_under_way_finish(station: MakeStation, pool: Any) -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def acquire() -> AsyncIterator[Any]:
        async with pool.acquire() as connection:
            if cron.is_started:
                entered.set()
                await release.wait()
            yield connection

    cron = station("* * * * * a", acquire=acquire)
    await cron.start()
    moving = asyncio.create_task(cron.clock.advance(1))
    await entered.wait()
    stopping = asyncio.create_task(cron.scheduler.stop())
    await asyncio.sleep(0)
    release.set()
    await asyncio.gather(moving, stopping)
    assert len(await cron.jobs()) == 1
    assert len(cron.events(CronScheduled)) == 1


async def test_stopping_before_starting_and_twice_does_nothing(pool: Any) -> None:
    scheduler = CronScheduler(pool.acquire, SchemaName(), [])
    await scheduler.stop()
    await scheduler.wait()
    other = CronScheduler(pool.acquire, SchemaName(), [])
    await other.start()
    with pytest.raises(RuntimeError, match="already been started"):
        await other.start()
    await other.stop()
    await other.stop()


@pytest.mark.compat("CS10")
async def test_without_items_it_idles(station: MakeStation) -> None:
    cron = station("")
    await cron.start()
    await cron.set("05:00")
    assert cron.is_started
    assert cron.events(CronSchedule) == []


async def test_the_real_clock_serves_too(pool: Any, caplog: pytest.LogCaptureFixture) -> None:
    from graphile_worker.cron import parse_crontab
    from graphile_worker.hooks import Events, Hooks

    events, started = Events(), asyncio.Event()
    events.on(CronStarted, lambda event: started.set())
    scheduler = CronScheduler(
        pool.acquire, SchemaName(), parse_crontab("* * * * * a"), hooks=Hooks(events=events)
    )
    with caplog.at_level(logging.WARNING):
        await scheduler.start()
        await started.wait()
        await scheduler.stop()
    assert caplog.records == []


async def test_a_keyed_add_that_came_back_empty_is_tried_again(station: MakeStation) -> None:
    """As the add_job of a schema installed by Node does when the key's job is locked at that moment."""
    cron = station("* * * * * a ?jobKey=k\n* * * * * b", "2021-01-01 01:00:30")
    await cron.start()
    await cron.pool.execute(
        """
        create sequence public.calls;
        alter function graphile_worker.add_job set schema public;
        create function graphile_worker.add_job(
            identifier text, payload json default null, queue_name text default null,
            run_at timestamptz default null, max_attempts integer default null, job_key text default null,
            priority integer default null, flags text[] default null, job_key_mode text default 'replace'
        ) returns graphile_worker._private_jobs language plpgsql as $$
        begin
            if job_key is not null and nextval('public.calls') = 1 then
                return null;
            end if;
            return public.add_job(identifier, payload, queue_name, run_at, max_attempts, job_key, priority,
                flags, job_key_mode);
        end $$;
        """
    )
    await cron.set("01:01:01")
    assert [(job["task"], job["key"]) for job in await cron.jobs()] == [("a", "k"), ("b", None)]


# -- options of tasks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [4, 40])
async def test_the_options_of_a_task_hold_for_items_that_set_none(station: MakeStation, limit: int) -> None:
    options: dict[str, Any] = {"max_attempts": limit, "queue_name": "q", "priority": 7, "flags": ["slow"]}
    tasks = build_registry([make_task("here", **options)(lambda: None), make_task("other")(lambda: None)])
    crontab = "* * * * * here\n* * * * * here ?id=own&max=3&priority=0&queue=mine\n* * * * * other"
    cron = station(crontab, tasks=tasks)
    await cron.start()
    await cron.clock.advance(1)
    jobs = await cron.jobs()
    assert [(job["max_attempts"], job["priority"], job["flags"]) for job in jobs] == [
        (limit, 7, '{"slow": true}'),
        (3, 0, '{"slow": true}'),
        (25, 0, None),
    ]
    queues = await cron.pool.fetch("select queue_name from graphile_worker._private_job_queues order by id")
    assert [row["queue_name"] for row in queues] == ["q", "mine"]


async def test_the_options_of_a_task_hold_for_backfilled_jobs(station: MakeStation) -> None:
    cron = station(
        "* * * * * here ?fill=5m",
        "2026-01-01 00:10",
        tasks=build_registry([make_task("here", max_attempts=4)(lambda: None)]),
    )
    await cron.learn("here", at("2026-01-01 00:00"), at("2026-01-01 00:06"))
    await cron.start()
    assert [job["max_attempts"] for job in await cron.jobs()] == [4, 4, 4]


async def test_the_job_key_of_a_task_holds_unless_the_item_has_an_empty_one(station: MakeStation) -> None:
    keyed = make_task("here", job_key="k", job_key_mode="preserve_run_at")(lambda: None)
    cron = station("* * * * * here\n* * * * * here ?id=b&jobKey=", tasks=build_registry([keyed]))
    await cron.start()
    await cron.clock.advance(1)
    await cron.clock.advance(60)
    assert sorted(str(job["key"]) for job in await cron.jobs()) == ["None", "None", "k"]


async def test_a_payload_that_does_not_fit_is_warned_about_at_start(
    station: MakeStation, caplog: pytest.LogCaptureFixture
) -> None:
    async def strict(payload: dict[str, int]) -> None: ...

    cron = station("* * * * * strict {a: 1}", tasks=build_registry([strict]))
    await cron.start()
    (record,) = caplog.records
    assert record.getMessage() == (
        "recurring jobs: crontab:1:11: payload: does not fit dict[str, int]: Expected `int`, got `object` "
        "- at `$[...]` (task 'strict'); payloads of recurring jobs have the member _cron, an object, which "
        "the type must allow; its jobs are added and will fail"
    )
