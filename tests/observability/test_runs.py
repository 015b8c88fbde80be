"""The log of real runs: the right logger, one line per event, tracebacks of tasks."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from graphile_worker import Job, JobHelpers
from graphile_worker.hooks import Events, FailJob, Hooks
from graphile_worker.hooks.emitter import emit_once
from graphile_worker.hooks.events import (
    Event,
    GracefulShutdown,
    JobStarted,
    JobSucceeded,
    PoolEvent,
    WorkerGetJobError,
)
from graphile_worker.logging.configure import JsonFormatter, TextFormatter
from graphile_worker.testing.results import EventRecorder
from observability.test_log_plugin import Collected
from support.working import Jobs, Workers

MakeLog = Callable[[str], "OwnLog"]
ONLY_WORD = re.compile(r"^task \w+ \(job \d+\):? |[ ;].*")


class OwnLog:
    """A logger of the user's program, isolated from all others."""

    def __init__(self, name: str) -> None:
        self.logger = logging.getLogger(f"test_runs.{name}")
        self.collected = Collected()
        self.logger.addHandler(self.collected)
        self.logger.setLevel(logging.DEBUG)
        self.logger.propagate = False

    @property
    def records(self) -> list[logging.LogRecord]:
        return self.collected.records

    def saying(self, text: str) -> list[logging.LogRecord]:
        return [record for record in self.records if text in record.getMessage()]

    def close(self) -> None:
        self.logger.removeHandler(self.collected)
        self.logger.propagate = True
        self.logger.setLevel(logging.NOTSET)


@pytest.fixture
def make_log() -> Iterator[MakeLog]:
    logs: list[OwnLog] = []

    def make(name: str) -> OwnLog:
        logs.append(OwnLog(name))
        return logs[-1]

    yield make
    for log in logs:
        log.close()


async def greet(payload: Any, helpers: JobHelpers) -> None:
    helpers.logger.info("hello")


async def fails() -> None:
    order: dict[str, str] = {}
    order["sku"]


# -- logger= -----------------------------------------------------------------------------------------------


async def test_what_tasks_log_and_what_is_logged_of_jobs_goes_to_the_given_logger(
    jobs: Jobs, workers: Workers, make_log: MakeLog, caplog: pytest.LogCaptureFixture
) -> None:
    log = make_log("shop")
    caplog.set_level(logging.DEBUG)
    hooks = Hooks()

    @hooks.before_run
    def refuse(job: Job) -> FailJob | None:
        return FailJob("not today") if job.task_identifier == "refused" else None

    for name in ("greet", "fails", "refused"):
        await jobs.add(name)
    tasks = {"greet": greet, "fails": fails, "refused": greet}
    await workers.once(tasks, logger=log.logger, hooks=hooks)
    runner = await workers.start(tasks, logger=log.logger, crontab="* * * * * unknown_task")
    await workers.stop(runner)
    (hello,) = log.saying("hello")
    assert (hello.name, hello.task_identifier) == ("test_runs.shop.job", "greet")  # type: ignore[attr-defined]
    for text in ("completed in", "KeyError: 'sku'; retrying", "not today; retrying", "ready: ", "stopping: "):
        assert log.saying(text), text
    (unknown,) = log.saying("unknown_task")
    assert unknown.name == "test_runs.shop.cron"
    assert [record for record in caplog.records if record.name.startswith("graphile_worker")] == []


async def test_without_one_everything_is_below_graphile_worker(
    jobs: Jobs, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await jobs.add("greet")
    await workers.once({"greet": greet})
    assert {(record.name, ONLY_WORD.sub("", record.getMessage())) for record in caplog.records} == {
        ("graphile_worker.job", "hello"),
        ("graphile_worker.worker", "completed"),
        ("graphile_worker", "stopped"),
    }


# -- one object for several runs ---------------------------------------------------------------------------


@pytest.mark.parametrize("shared", ["events", "hooks"])
async def test_runs_that_share_an_object_do_not_multiply_log_lines(
    jobs: Jobs, workers: Workers, make_log: MakeLog, shared: str
) -> None:
    log = make_log("shop")
    events = Events()
    seen: list[Event] = []
    events.on(JobSucceeded, seen.append)
    given: dict[str, Any] = {"events": events} if shared == "events" else {"hooks": Hooks(events=events)}
    for run in (1, 2, 3):
        await jobs.add("greet")
        await workers.once({"greet": greet}, logger=log.logger, **given)
        assert len(log.saying("completed in")) == run
        assert len(seen) == run


async def test_workers_that_share_an_object_at_the_same_time_log_each_job_once(
    jobs: Jobs, workers: Workers, make_log: MakeLog, recorder: EventRecorder
) -> None:
    logs = [make_log("one"), make_log("two")]
    runners = [
        await workers.start({"greet": greet}, logger=log.logger, events=recorder.events) for log in logs
    ]
    for _ in range(10):
        await jobs.add("greet")
    await recorder.wait_for(JobSucceeded, count=10)
    for runner in runners:
        await workers.stop(runner)
    lines = [record.job_id for log in logs for record in log.saying("completed in")]  # type: ignore[attr-defined]
    assert sorted(lines) == sorted(event.job.id for event in recorder.of(JobSucceeded))
    assert len(lines) == 10
    for log, runner in zip(logs, runners, strict=True):
        pools = {record.pool_id for record in log.records if hasattr(record, "pool_id")}
        assert pools == {runner.pool_id}


class Counting:
    """A plugin with an observer and interceptors."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def install(self, hooks: Hooks) -> None:
        hooks.events.on(JobStarted, lambda event: self.calls.append("observer"))
        hooks.before_run(lambda job: self.calls.append("before_run"))
        hooks.after_run(lambda job, outcome: self.calls.append("after_run"))
        hooks.before_add(lambda spec: self.calls.append("before_add"))


async def test_a_plugin_serves_each_run_once_although_the_hooks_are_the_same(
    jobs: Jobs, workers: Workers
) -> None:
    hooks, plugin = Hooks(), Counting()

    async def adds(payload: Any, helpers: JobHelpers) -> None:
        await helpers.add_job("later", run_at=None, priority=5)

    for _ in range(3):
        plugin.calls.clear()
        await jobs.add("adds")
        await workers.once({"adds": adds}, hooks=hooks, plugins=[plugin])
        assert sorted(plugin.calls) == ["after_run", "before_add", "before_run", "observer"]
    plugin.calls.clear()
    await jobs.add("adds")
    await workers.once({"adds": adds}, hooks=hooks)  # without the plugin, which ended with its runs
    assert plugin.calls == []


async def test_hooks_added_later_to_shared_hooks_reach_a_run_in_progress(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    hooks = Hooks(events=recorder.events)
    runner = await workers.start({"greet": greet}, hooks=hooks)
    assert runner.events is hooks.events
    recorder.close()
    seen: list[Event] = []
    asked: list[int] = []
    hooks.before_run(lambda job: asked.append(job.id))
    succeeded = EventRecorder(hooks.events)
    hooks.events.on(JobStarted, seen.append)
    first = await jobs.add("greet")
    await succeeded.wait_for(JobSucceeded)
    hooks.events.off(JobStarted, seen.append)
    second = await jobs.add("greet")
    await succeeded.wait_for(JobSucceeded, count=2)
    assert [event.job.id for event in seen if isinstance(event, JobStarted)] == [first]
    assert asked == [first, second]


def test_a_run_wants_an_event_while_it_has_an_observer() -> None:
    given = Hooks()
    run, other = given.for_run(), given.for_run()
    observed = run.events.observed  # loops keep a reference to the set

    def observer(event: Event) -> None:
        pass

    run.events.on(JobStarted, observer)
    assert (observed, other.events.observed) == ({JobStarted}, set())
    given.events.on(JobSucceeded, observer)
    assert observed == {JobStarted, JobSucceeded}
    given.events.off(JobSucceeded, observer)
    assert observed == {JobStarted}
    given.events.on(JobStarted, observer)
    run.events.off(JobStarted, observer)
    assert observed == {JobStarted}
    given.events.on(Event, observer)
    assert {JobStarted, JobSucceeded} < observed
    assert PoolEvent not in observed


# -- a failed task -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("max_attempts", "level"), [(2, "WARNING"), (1, "ERROR")])
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_failed_task_leaves_its_traceback_in_text_and_json(
    jobs: Jobs, workers: Workers, make_log: MakeLog, max_attempts: int, level: str, kind: str
) -> None:
    def in_thread() -> None:
        order: dict[str, str] = {}
        order["sku"]

    log = make_log("shop")
    await jobs.add("fails", max_attempts=max_attempts)
    await workers.once({"fails": fails if kind == "async" else in_thread}, logger=log.logger)
    (record,) = log.saying("KeyError: 'sku'")
    assert record.levelname == level
    line, head, place, source, *_, last = TextFormatter().format(record).split("\n")
    assert f"{level} [test_runs.shop.worker] task fails (job 1) " in line
    assert head == "    Traceback (most recent call last):"
    assert place.startswith(f'      File "{__file__}", line ')
    assert place.endswith("in fails" if kind == "async" else "in in_thread")
    assert source.strip() == 'order["sku"]'
    assert last == "    KeyError: 'sku'"
    fields = json.loads(JsonFormatter().format(record))
    assert fields["traceback"].endswith("\nKeyError: 'sku'")
    assert (fields["error"], fields["error_type"]) == ("'sku'", "KeyError")


async def test_a_fault_of_the_job_itself_has_a_message_and_no_traceback(
    jobs: Jobs, workers: Workers, make_log: MakeLog
) -> None:
    async def ship(payload: int) -> None:
        pass

    log = make_log("shop")
    await jobs.add("ship", {"not": "a number"})
    await workers.once({"ship": ship}, logger=log.logger)
    (record,) = log.saying("retrying in")
    assert "Traceback" not in TextFormatter().format(record)
    assert (await jobs.one())["last_error"] in record.getMessage()


# -- scope -------------------------------------------------------------------------------------------------


async def test_a_scope_adds_fields_to_what_a_task_logs(
    jobs: Jobs, workers: Workers, make_log: MakeLog
) -> None:
    async def ship(payload: Any, helpers: JobHelpers) -> None:
        bank = helpers.logger.scope({"label": "bank"}, order=17)
        bank.info("charged")
        bank.scope(card="visa").warning("slow", extra={"seconds": 3})
        helpers.logger.info("as before")

    log = make_log("shop")
    job_id = await jobs.add("ship")
    await workers.once({"ship": ship}, logger=log.logger)
    charged, slow, before = [log.saying(text)[0] for text in ("charged", "slow", "as before")]
    assert TextFormatter(timestamps=False).format(charged) == f"INFO [bank] task ship (job {job_id}): charged"
    fields = json.loads(JsonFormatter().format(slow))
    assert (fields["label"], fields["order"], fields["card"], fields["seconds"]) == ("bank", 17, "visa", 3)
    assert (fields["task"], fields["job_id"], fields["level"]) == ("ship", job_id, "warning")
    assert "order" not in json.loads(JsonFormatter().format(before))


async def test_a_scope_with_a_field_that_every_record_has_is_refused_at_once(
    jobs: Jobs, workers: Workers
) -> None:
    async def ship(payload: Any, helpers: JobHelpers) -> None:
        helpers.logger.scope(name="x")

    await jobs.add("ship")
    await workers.once({"ship": ship})
    assert "name: every log record has an attribute of that name" in (await jobs.one())["last_error"]


# -- what events are about ---------------------------------------------------------------------------------


async def test_a_failed_fetch_is_an_event_of_its_pool(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    runner = await workers.start({"greet": greet}, events=recorder.events)
    table = "graphile_worker._private_jobs"
    await jobs.connection.execute(f"alter table {table} rename to away")
    try:
        await jobs.connection.execute("select pg_notify('jobs:insert', $1)", '{"count": 1}')
        event = await recorder.wait_for(WorkerGetJobError)
    finally:
        await jobs.connection.execute("alter table graphile_worker.away rename to _private_jobs")
    assert event.pool_id == runner.pool_id
    assert not hasattr(event, "worker_id")


def test_an_observer_of_several_runs_gets_an_event_of_the_process_once() -> None:
    given = Hooks()
    heard: list[str] = []
    given.events.on(GracefulShutdown, lambda event: heard.append("user"))
    runs = [given.for_run(), given.for_run()]
    for number, run in enumerate(runs):
        run.events.on(GracefulShutdown, lambda event, number=number: heard.append(f"plugin {number}"))  # type: ignore[misc]
    emit_once([run.events for run in runs], GracefulShutdown(signal="SIGTERM"))
    assert sorted(heard) == ["plugin 0", "plugin 1", "user"]
