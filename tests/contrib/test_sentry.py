"""Sentry, with a transport that keeps what the real SDK would send; in both modes of the SDK."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import sentry_sdk
from opentelemetry.sdk.trace import TracerProvider

from graphile_worker import (
    CronItem,
    GiveUp,
    WorkerUtils,
    make_worker_utils,
    parse_cron_items,
    run,
    run_once,
    task,
)
from graphile_worker.contrib.opentelemetry import OpenTelemetryPlugin
from graphile_worker.contrib.sentry import SentryPlugin
from graphile_worker.contrib.sentry.monitors import slug_of
from graphile_worker.hooks import Events, Hooks, Plugin
from graphile_worker.hooks.events import JobCompleted
from support.sentry import Sent, sentry_keeping
from support.working import until

MODES = ("static", "stream")


Init = Callable[..., Sent]


@pytest.fixture
def init() -> Iterator[Init]:
    """Initialises the SDK; it is closed at the end."""
    with ExitStack() as stack:
        yield lambda mode="static", **options: stack.enter_context(sentry_keeping(mode, **options))


class Refused(Exception):
    pass


async def drain(url: str, *tasks: Any, plugin: SentryPlugin | None = None, **options: Any) -> None:
    await run_once(
        connection_string=url,
        task_list=list(tasks),
        plugins=[plugin or SentryPlugin()],
        handle_signals=False,
        **options,
    )


@pytest.fixture
async def utils(database_url: str) -> Any:
    async with make_worker_utils(connection_string=database_url, plugins=["sentry"]) as utils:
        yield utils


@pytest.mark.parametrize("mode", MODES)
async def test_one_trace_leads_from_the_request_to_the_error(
    init: Init, utils: WorkerUtils, database_url: str, mode: str
) -> None:
    sent = init(mode)
    start = sentry_sdk.traces.start_span if mode == "stream" else sentry_sdk.start_transaction
    with start(name="POST /users"):
        job = await utils.add_job("charge", {"amount": 3}, max_attempts=1, run_at=None)
    seen: list[Any] = []

    @task
    async def charge(payload: Any) -> None:
        seen.append(payload)
        raise Refused("no money")

    await drain(database_url, charge)
    assert seen == [{"amount": 3}]
    (publish,), (process,) = sent.spans("queue.publish"), sent.spans("queue.process")
    (root,) = sent.spans("queue.task.graphile_worker")
    (error,) = sent.errors
    trace = error["contexts"]["trace"]
    assert {each["trace_id"] for each in (publish, root, process, trace)} == {publish["trace_id"]}
    assert root["parent_span_id"] == publish["span_id"]
    assert process["parent_span_id"] == root["span_id"]
    assert trace["span_id"] == process["span_id"]
    assert root["name"] == process["name"] == publish["name"] == "charge"
    data = process["data"]
    assert data["messaging.system"] == "graphile_worker"
    assert data["messaging.destination.name"] == "charge"
    assert data["messaging.message.id"] == publish["data"]["messaging.message.id"] == str(job.id)
    assert data["messaging.message.retry.count"] == 0
    assert data["messaging.message.receive.latency"] >= 0
    assert process["status"] in ("internal_error", "error")
    assert error["tags"]["graphile_worker.job_id"] == str(job.id)
    assert error["contexts"]["graphile_worker"]["max_attempts"] == 1
    assert "payload" not in error["contexts"]["graphile_worker"]
    (exception,) = error["exception"]["values"]
    assert (exception["type"], exception["value"]) == ("Refused", "no money")
    assert exception["mechanism"] == {"type": "graphile_worker", "handled": False}
    assert exception["stacktrace"]["frames"][-1]["function"] == "charge"


@pytest.mark.parametrize("mode", MODES)
async def test_two_jobs_at_once_and_a_thread_do_not_share_a_scope(
    init: Init, utils: WorkerUtils, database_url: str, mode: str
) -> None:
    sent = init(mode)
    both = asyncio.Barrier(2)

    @task
    async def wait(payload: dict[str, int]) -> None:
        sentry_sdk.add_breadcrumb(message=f"crumb {payload['n']}")
        sentry_sdk.set_tag("n", str(payload["n"]))
        await both.wait()
        raise Refused(str(payload["n"]))

    @task
    def in_thread(payload: None) -> None:
        sentry_sdk.capture_message("from a thread")

    for number in (1, 2):
        await utils.add_job("wait", {"n": number}, max_attempts=1)
    await drain(database_url, wait, concurrency=2)
    errors = {error["exception"]["values"][0]["value"]: error for error in sent.errors}
    for n in ("1", "2"):
        assert errors[n]["tags"]["n"] == n
        assert [crumb["message"] for crumb in errors[n]["breadcrumbs"]["values"]] == [f"crumb {n}"]
    job = await utils.add_job("in_thread")
    await drain(database_url, in_thread)
    message = sent.errors[-1]
    assert message["message"] == "from a thread"
    assert message["tags"]["graphile_worker.task"] == "in_thread"
    assert message["tags"]["graphile_worker.job_id"] == str(job.id)
    (process,) = [span for span in sent.spans("queue.process") if span["name"] == "in_thread"]
    assert message["contexts"]["trace"]["span_id"] == process["span_id"]


async def test_the_error_of_a_job_is_sent_when_it_has_failed_permanently(
    init: Init, utils: WorkerUtils, database_url: str, connection: Any
) -> None:
    sent = init(traces_sample_rate=None)
    caught: list[str] = []

    @task
    async def flaky(payload: str, helpers: Any) -> None:
        helpers.logger.info("a line of the task")
        caught.append(payload)
        if payload == "gives up":
            raise GiveUp("not worth it")
        if payload == "logs":
            helpers.logger.error("a line that the task wrote")
            return
        raise Refused(f"{payload} {len(caught)}")

    await utils.add_job("flaky", "often", max_attempts=3)
    for attempt in (1, 2):
        await drain(database_url, flaky)
        assert sent.errors == [], attempt
        await connection.execute("update graphile_worker._private_jobs set run_at = now()")
    await drain(database_url, flaky)
    (error,) = sent.errors
    assert error["exception"]["values"][0]["value"] == "often 3"
    assert error["contexts"]["graphile_worker"]["failed_attempts"] == 2
    assert error["breadcrumbs"]["values"][0]["message"].endswith("Refused: often 2")

    await utils.add_job("flaky", "gives up")
    await drain(database_url, flaky)
    assert [each["exception"]["values"][0]["value"] for each in sent.errors[1:]] == ["not worth it"]
    await utils.add_job("flaky", "logs")
    await drain(database_url, flaky)
    assert [each.get("logentry", {}).get("formatted") for each in sent.errors[2:]] == [
        "task flaky (job 3): a line that the task wrote"
    ]
    await utils.add_job("flaky", "often", max_attempts=3)
    await drain(database_url, flaky, plugin=SentryPlugin(capture="all"), logger=logging.getLogger("shop"))
    assert len(sent.errors) == 4  # not again by the line in the program's own logger


async def test_payloads_are_sent_if_wanted_and_redacted(
    init: Init, utils: WorkerUtils, database_url: str
) -> None:
    sent = init(data_collection={"queues": True})

    @task
    async def charge(payload: Any) -> None:
        raise Refused

    hooks = Hooks()
    hooks.redact(lambda part, name, value: {**value, "card": "***"} if part == "payload" else value)
    for payloads in (None, False):
        await utils.add_job("charge", {"card": "4111"}, max_attempts=1)
        await drain(database_url, charge, plugin=SentryPlugin(payloads=payloads), hooks=hooks)
    first, second = sent.errors
    assert first["contexts"]["graphile_worker"]["payload"] == {"card": "***"}
    assert "payload" not in second["contexts"]["graphile_worker"]


async def test_without_tracing_errors_still_share_the_trace_of_the_request(
    init: Init, utils: WorkerUtils, database_url: str
) -> None:
    sent = init(traces_sample_rate=None)

    @task
    async def charge(payload: Any) -> None:
        raise Refused

    with sentry_sdk.isolation_scope() as scope:
        scope.set_new_propagation_context()
        await utils.add_job("charge", {}, max_attempts=1)
        sentry_sdk.capture_message("in the request")
    await drain(database_url, charge)
    request, error = sent.errors
    assert error["contexts"]["trace"]["trace_id"] == request["contexts"]["trace"]["trace_id"]
    assert sent.of("transaction") == []


async def test_without_an_initialised_sdk_nothing_happens(database_url: str, connection: Any) -> None:
    assert not sentry_sdk.is_initialized()
    ran: list[Any] = []

    @task
    async def charge(payload: Any) -> None:
        ran.append(payload)

    async with make_worker_utils(connection_string=database_url, plugins=[SentryPlugin()]) as utils:
        await utils.add_job("charge", {"a": 1})
    assert await connection.fetchval("select payload::text from graphile_worker._private_jobs") == '{"a":1}'
    await drain(database_url, charge)
    assert ran == [{"a": 1}]


async def test_recurring_jobs_check_in_once_at_the_start_and_once_at_the_end(
    init: Init, utils: WorkerUtils, database_url: str, connection: Any
) -> None:
    sent = init()
    is_broken = True

    @task
    async def report(payload: Any) -> None:
        if is_broken:
            raise Refused

    @task
    async def shared(payload: Any) -> None:
        pass

    items = [
        CronItem(report, "0 4 * * *", identifier="nightly/Report", options={"tz": "Europe/Berlin"}),
        CronItem(shared, "0 5 * * *", identifier="one"),
        CronItem(shared, "0 6 * * *", identifier="two"),
    ]
    plugin = SentryPlugin(monitor_cron=True)
    ended = asyncio.Event()
    events = Events()
    events.on(JobCompleted, lambda _: ended.set())
    arguments: Any = {
        "connection_string": database_url, "task_list": [report, shared], "plugins": [plugin],
        "handle_signals": False, "events": events, "poll_interval": 0.1,
    }  # fmt: skip
    async with run(**arguments, parsed_cron_items=parse_cron_items(items)):
        await utils.add_job("report", {"_cron": {"ts": "2026-01-01T04:00:00Z"}}, max_attempts=2)
        await ended.wait()
        assert [each["status"] for each in sent.check_ins] == ["in_progress"]
        ended.clear()
        is_broken = False
        await connection.execute("update graphile_worker._private_jobs set run_at = now()")
        await ended.wait()
        await utils.add_job("shared", {"_cron": {"ts": "2026-01-01T05:00:00Z"}})
        await utils.add_job("report", {})
        await until(lambda: len(sent.spans("queue.process")) == 4)
    first, last = sent.check_ins
    assert (first["status"], last["status"]) == ("in_progress", "ok")
    assert first["check_in_id"] == last["check_in_id"]
    assert first["monitor_slug"] == slug_of("nightly/Report") == "nightly-report"
    assert first["monitor_config"] == {
        "schedule": {"type": "crontab", "value": "0 4 * * *"},
        "timezone": "Europe/Berlin",
    }


async def test_with_both_plugins_opentelemetry_writes_the_trace_and_sentry_reads_it(
    init: Init, database_url: str
) -> None:
    sent, provider = init(traces_sample_rate=None), TracerProvider()

    @task
    async def charge(payload: Any) -> None:
        raise Refused

    plugins: list[Plugin] = [SentryPlugin(), OpenTelemetryPlugin(tracer_provider=provider)]
    async with make_worker_utils(connection_string=database_url, plugins=plugins) as utils:
        with provider.get_tracer("shop").start_as_current_span("request") as request:
            await utils.add_job("charge", max_attempts=1)
    await drain(database_url, charge)
    (error,) = sent.errors
    assert error["contexts"]["trace"]["trace_id"] == f"{request.get_span_context().trace_id:032x}"
