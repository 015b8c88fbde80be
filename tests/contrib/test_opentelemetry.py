"""OpenTelemetry, with the real SDK and exporters in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psycopg
import pytest
from fastapi import FastAPI
from opentelemetry import baggage, trace
from opentelemetry.context import attach, detach
from opentelemetry.instrumentation.asyncpg import AsyncPGInstrumentor
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    ParentBased,
    ParentBasedTraceIdRatio,
    Sampler,
    TraceIdRatioBased,
)
from opentelemetry.trace import SpanKind, StatusCode

from contrib.traced_process import note_trace
from graphile_worker import (
    JobHelpers,
    JobSpec,
    Snooze,
    SyncWorkerUtils,
    make_sync_worker_utils,
    make_worker_utils,
    run,
    run_once,
    task,
)
from graphile_worker.contrib.opentelemetry import (
    OpenTelemetryPlugin,
    context_as_text,
    context_from_text,
    context_of,
    inject,
)
from graphile_worker.contrib.opentelemetry.carried import ROOT
from graphile_worker.contrib.opentelemetry.tracing import root_starter
from graphile_worker.database.connections.dsn import Dsn
from graphile_worker.database.connections.open import target_of
from graphile_worker.errors import ConfigError, InvalidArgumentError, JobRefusedError
from graphile_worker.hooks import Hooks
from graphile_worker.hooks.events import JobsAdded
from graphile_worker.metrics.catalogue import INSTRUMENTS
from graphile_worker.options import RecoveryOptions
from support.working import PATIENCE, Jobs, until

RUST_TRACE: dict[str, Any] = {
    "flags": 1,
    "trace_id": "0af7651916cd43dd8448eb211c80319c",
    "span_id": "b7ad6b7169203331",
}


class Collector:
    """A provider, and the spans that it has exported."""

    def __init__(self, sampler: Any = ALWAYS_ON) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("application")

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()

    def all(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (found,) = self.all(name)
        return found

    def plugin(self, **options: Any) -> OpenTelemetryPlugin:
        return OpenTelemetryPlugin(tracer_provider=self.provider, **options)


def ids(span: ReadableSpan) -> tuple[int, int]:
    return span.context.trace_id, span.context.span_id


def links(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return span.parent is not None and (span.parent.trace_id, span.parent.span_id) == ids(parent)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.fixture
def collector() -> Collector:
    return Collector()


async def test_one_trace_goes_from_a_request_through_jobs_children_retries_and_batches(
    database_url: str, jobs: Jobs, collector: Collector
) -> None:
    plugin = collector.plugin(relation="parent")
    attempts: list[int] = []

    @task
    async def order(payload: dict[str, int], helpers: JobHelpers) -> None:
        with collector.tracer.start_as_current_span("look up"):
            await helpers.add_job("pay", {"order": payload["id"]}, queue_name="money", job_key="pay:1")

    @task
    def pay(payload: dict[str, int], helpers: JobHelpers) -> None:
        attempts.append(helpers.job.attempts)
        with collector.tracer.start_as_current_span("call the bank"):
            if len(attempts) == 1:
                raise ValueError("the bank is closed")
        helpers.sync.add_jobs([JobSpec("mail", [{"to": number}]) for number in range(2)])

    @task
    async def mail(payload: list[dict[str, int]]) -> None: ...

    tasks: list[Any] = [order, pay, mail]
    app = FastAPI()

    @app.post("/orders/{number}")
    async def create(number: int) -> int:
        return (await utils.add_job(order, {"id": number})).id

    FastAPIInstrumentor.instrument_app(app, tracer_provider=collector.provider)
    async with make_worker_utils(connection_string=database_url, plugins=[plugin]) as utils:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            order_id = (await client.post("/orders/7")).json()
    for _ in range(3):
        await jobs.make_due()
        await run_once(connection_string=database_url, task_list=tasks, plugins=[plugin])
    assert await jobs.count() == 0

    request = collector.one("POST /orders/{number}")
    assert {span.context.trace_id for span in collector.spans} == {request.context.trace_id}
    send, process = collector.one("send order"), collector.one("process order")
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert is_child(send, request)
    assert is_child(process, send)
    assert is_child(collector.one("look up"), process)
    assert is_child(collector.one("send pay"), collector.one("look up"))
    first, second = collector.all("process pay")
    assert is_child(first, collector.one("send pay"))
    assert is_child(second, collector.one("send pay"))
    for call, run_of_it in zip(collector.all("call the bank"), (first, second), strict=True):
        assert is_child(call, run_of_it)  # in a thread
    assert is_child(collector.one("send mail"), second)
    assert all(is_child(span, collector.one("send mail")) for span in collector.all("process mail"))
    assert len(collector.all("process mail")) == 2

    found = attributes(send)
    assert found.pop("server.address")
    found.pop("server.port", None)  # not of a socket
    assert found == {
        "messaging.system": "graphile_worker",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "order",
        "messaging.message.id": str(order_id),
        "graphile_worker.schema": "graphile_worker",
    }
    found = attributes(first)
    assert found.pop("messaging.client.id")
    assert found.pop("server.address")
    found.pop("server.port", None)
    assert found == {
        "messaging.system": "graphile_worker",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "pay",
        "messaging.message.id": attributes(collector.one("send pay"))["messaging.message.id"],
        "graphile_worker.attempt": 1,
        "graphile_worker.max_attempts": 25,
        "graphile_worker.job_key": "pay:1",
        "graphile_worker.schema": "graphile_worker",
        "graphile_worker.outcome": "failed",
        "error.type": "ValueError",
    }
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "the bank is closed")
    (event,) = first.events
    assert event.name == "exception"
    assert "the bank is closed" in str((event.attributes or {})["exception.stacktrace"])
    assert (attributes(second)["graphile_worker.outcome"], second.status.status_code) == (
        "completed",
        StatusCode.UNSET,
    )
    assert attributes(collector.one("send pay"))["graphile_worker.queue_name"] == "money"
    assert attributes(collector.one("send mail"))["messaging.batch.message_count"] == 2


async def test_a_run_begins_a_trace_and_links_to_the_add_also_one_of_a_rust_program(
    database_url: str, jobs: Jobs, collector: Collector
) -> None:
    class Strict(msgspec.Struct, forbid_unknown_fields=True):
        a: int

    contexts: list[Any] = []

    @task
    async def strict(payload: Strict, helpers: JobHelpers) -> None:
        contexts.append(context_of(helpers.job))

    @task
    async def batch(payload: list[Strict]) -> None: ...

    other: dict[str, Any] = {**RUST_TRACE, "span_id": "00f067aa0ba902b7", "unknown": [1]}
    malformed = {"trace_id": "zz", "span_id": "b7ad6b7169203331"}
    await jobs.add("strict", {"_trace": RUST_TRACE, "a": 1})
    await jobs.add("strict", {"_trace": malformed, "a": 2})
    items = [{"_trace": each, "a": 1} for each in (RUST_TRACE, other, RUST_TRACE)]
    await jobs.add("batch", items)
    plugin = collector.plugin()
    tasks: list[Any] = [strict, batch]
    await run_once(connection_string=database_url, task_list=tasks, plugins=[plugin])
    first, second = collector.all("process strict")
    trace_id, *span_ids = (
        int(text, 16) for text in (RUST_TRACE["trace_id"], RUST_TRACE["span_id"], other["span_id"])
    )
    assert first.parent is None
    assert first.context.trace_id != trace_id
    assert (links(first), links(second)) == ([(trace_id, span_ids[0])], [])
    assert links(collector.one("process batch")) == [(trace_id, span_id) for span_id in span_ids]
    assert attributes(collector.one("process batch"))["messaging.batch.message_count"] == 3
    span = trace.get_current_span(contexts[0]).get_span_context()
    assert (span.trace_id, span.span_id, span.is_remote, contexts[1]) == (trace_id, span_ids[0], True, None)


async def test_payloads_carry_the_context_where_they_can_and_stay_as_they_are(
    database_url: str, jobs: Jobs, collector: Collector
) -> None:
    async with make_worker_utils(connection_string=database_url, plugins=[collector.plugin()]) as utils:
        seen: list[Any] = []
        utils.hooks.events.on(JobsAdded, lambda event: seen.extend(spec.payload for spec in event.specs))
        token = attach(baggage.set_baggage("tenant", "a b,c"))
        with collector.tracer.start_as_current_span("request"):
            for payload in ({"a": 1.5}, None, [{"a": 1}, 2], "text", 3, {"_trace": RUST_TRACE}):
                await utils.add_job("any", payload)
            sql_payload = inject({"a": 1})
        detach(token)
        assert seen == [{"a": 1.5}, None, [{"a": 1}, 2], "text", 3, {"_trace": RUST_TRACE}]
        with pytest.raises(InvalidArgumentError, match=r"payload: cannot be encoded as JSON at \$.a"):
            await utils.add_job("any", {"a": object()})
    payloads = [json.loads(row["payload"]) for row in await jobs.all()]
    sends = collector.all("send any")
    carried = [
        {
            "flags": int(span.context.trace_flags),
            "trace_id": f"{span.context.trace_id:032x}",
            "span_id": f"{span.context.span_id:016x}",
            "baggage": "tenant=a+b%2Cc",
        }
        for span in sends
    ]
    assert payloads == [
        {"_trace": carried[0], "a": 1.5},
        {"_trace": carried[1]},
        [{"_trace": carried[2], "a": 1}, 2],
        "text",
        3,
        {"_trace": RUST_TRACE},
    ]
    assert list(payloads[0]["_trace"]) == ["flags", "trace_id", "span_id", "baggage"]  # as Rust orders them
    request = collector.one("request")
    assert isinstance(sql_payload, dict)
    assert sql_payload["_trace"]["span_id"] == f"{request.context.span_id:016x}"
    assert inject({"a": 1}) == {"a": 1}  # there is no current span
    failed = sends[-1]
    assert attributes(failed)["error.type"] == "InvalidArgumentError"
    assert failed.status.status_code is StatusCode.ERROR

    tenants: list[object] = []

    async def any_task() -> None:
        tenants.append(baggage.get_baggage("tenant"))

    plugin = collector.plugin()
    await run_once(connection_string=database_url, task_list={"any": any_task}, plugins=[plugin])
    assert tenants == ["a b,c", "a b,c", "a b,c", None, None, None]


async def test_keys_merges_and_refusals(database_url: str, jobs: Jobs, collector: Collector) -> None:
    hooks = Hooks(plugins=[collector.plugin()])

    @hooks.before_add
    def refuse(spec: JobSpec) -> None:
        if spec.task_identifier == "refused":
            raise JobRefusedError("no")

    async with make_worker_utils(connection_string=database_url, hooks=hooks) as utils:
        for number in range(2):
            await utils.add_job("merged", [{"n": number}], job_key="m")
            await utils.add_job("kept", {"n": number}, job_key="d", job_key_mode="unsafe_dedupe")
        with pytest.raises(JobRefusedError):
            await utils.add_job("refused")
    merged, kept = (json.loads(row["payload"]) for row in await jobs.all())
    assert [item["n"] for item in merged] == [0, 1]
    assert [int(item["_trace"]["span_id"], 16) for item in merged] == [
        span.context.span_id for span in collector.all("send merged")
    ]
    assert kept["n"] == 0
    assert int(kept["_trace"]["span_id"], 16) == collector.all("send kept")[0].context.span_id
    assert attributes(collector.one("send refused"))["error.type"] == "JobRefusedError"
    assert attributes(collector.all("send kept")[1])["graphile_worker.job_key"] == "d"


async def test_a_span_for_each_job_of_an_add_on_request(
    database_url: str, jobs: Jobs, collector: Collector
) -> None:
    plugin = collector.plugin(create_spans=True, tasks=lambda name: name != "silent")
    async with make_worker_utils(connection_string=database_url, plugins=[plugin]) as utils:
        with collector.tracer.start_as_current_span("request"):
            await utils.add_jobs([JobSpec("a"), JobSpec("b"), JobSpec("silent")])
            await utils.add_job("silent")
            await utils.add_jobs(JobSpec("a") for _ in range(2))
    first, second = collector.all("send"), collector.all("send a")
    assert [span.kind for span in (*first, *second)] == [SpanKind.CLIENT, SpanKind.CLIENT]
    assert all(is_child(span, collector.one("request")) for span in (*first, *second))
    created = [*collector.all("create a")[:1], *collector.all("create b")]
    assert all(is_child(span, first[0]) and span.kind is SpanKind.PRODUCER for span in created)
    rows = await jobs.all()
    carried = [json.loads(row["payload"]).get("_trace", {}).get("span_id") for row in rows]
    assert carried[:4] == [*(f"{span.context.span_id:016x}" for span in created), None, None]
    assert not collector.all("send silent")


def test_blocking_clients_carry_the_context_too(database_url: str, collector: Collector) -> None:
    hooks = Hooks(plugins=[collector.plugin()])
    with (
        collector.tracer.start_as_current_span("request"),
        make_sync_worker_utils(connection_string=database_url, hooks=hooks) as utils,
        psycopg.connect(database_url) as connection,
    ):
        one = utils.add_job("in the background")
        two = SyncWorkerUtils.bound(connection, hooks=hooks).add_job("in this thread")
    for job, name in ((one, "send in the background"), (two, "send in this thread")):
        assert is_child(collector.one(name), collector.one("request"))
        assert job.payload["_trace"]["span_id"] == f"{collector.one(name).context.span_id:016x}"


async def test_other_outcomes_are_no_errors(database_url: str, jobs: Jobs, collector: Collector) -> None:
    started = asyncio.Event()

    async def snoozes() -> None:
        raise Snooze(3600)

    async def hangs() -> None:
        started.set()
        await asyncio.sleep(3600)

    for name in ("snoozes", "hangs"):
        await jobs.add(name)
    async with run(
        connection_string=database_url, task_list={"snoozes": snoozes, "hangs": hangs},
        plugins=[collector.plugin()], grace=0.01, handle_signals=False,
    ) as runner:  # fmt: skip
        async with asyncio.timeout(PATIENCE):
            await started.wait()
        await runner.stop()
    for name, outcome in (("process snoozes", "snoozed"), ("process hangs", "interrupted")):
        span = collector.one(name)
        assert attributes(span)["graphile_worker.outcome"] == outcome
        assert span.status.status_code is StatusCode.UNSET
    assert [event.name for event in collector.one("process hangs").events] == ["interrupted"]


async def test_an_unsampled_request_makes_an_unsampled_run_if_it_is_the_parent(
    database_url: str, collector: Collector
) -> None:
    seen: list[trace.SpanContext] = []

    async def quiet() -> None:
        seen.append(trace.get_current_span().get_span_context())

    off = Collector(ALWAYS_OFF)
    async with make_worker_utils(connection_string=database_url, plugins=[off.plugin()]) as utils:
        job = await utils.add_job("quiet", {})
    assert job.payload["_trace"]["flags"] & 1 == 0
    on = Collector(ParentBased(ALWAYS_ON))
    await run_once(
        connection_string=database_url, task_list={"quiet": quiet}, plugins=[on.plugin(relation="parent")]
    )
    assert not on.spans
    assert f"{seen[0].trace_id:032x}" == job.payload["_trace"]["trace_id"]


async def until_seen_again(database_url: str, times: int) -> None:
    """Wait for heartbeats of the worker, by another driver than the instrumented one."""
    query = "select last_seen_at from graphile_worker._private_py_workers"
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        seen: set[Any] = set()

        async def is_seen() -> bool:
            seen.update(await (await connection.execute(query)).fetchall())
            return len(seen) > times

        await until(is_seen)


async def test_a_recurring_job_has_a_span_and_an_idle_worker_has_none(
    database_url: str, jobs: Jobs, collector: Collector
) -> None:
    """The worker is instrumented with asyncpg, whose own statements make no spans, and those of tasks do."""
    ran = asyncio.Event()

    async def tick(payload: Any, helpers: JobHelpers) -> None:
        await helpers.progress(0.5)
        await helpers.query("select 1")
        ran.set()

    await jobs.connection.execute(
        "insert into graphile_worker._private_known_crontabs "
        "values ('every_minute', now() - interval '1 day', now() - interval '90 seconds')"
    )
    instrumentor = AsyncPGInstrumentor()  # type: ignore[no-untyped-call]
    instrumentor.instrument(tracer_provider=collector.provider)
    try:
        async with run(
            connection_string=database_url, task_list={"tick": tick}, plugins=[collector.plugin()],
            crontab="* * * * * tick ?id=every_minute&fill=10m", poll_interval=0.05,
            recovery=RecoveryOptions(heartbeat_interval=0.1), handle_signals=False,
        ):  # fmt: skip
            async with asyncio.timeout(PATIENCE):
                await ran.wait()
                await until(lambda: bool(collector.all("process tick")))
            await until_seen_again(database_url, times=3)  # with more polls than heartbeats in between
    finally:
        instrumentor.uninstrument()
    send, process = collector.all("send tick")[0], collector.all("process tick")[0]
    assert send.parent is process.parent is None
    assert attributes(send)["graphile_worker.cron_item"] == "every_minute"
    assert links(process) == [ids(send)]
    of_task = [span.name for span in collector.spans if is_child(span, process)]
    assert of_task == ["select", "SELECT"]  # the second is how asyncpg resets a connection
    began = send.start_time or 0  # before that, the worker has looked at the schema
    roots = [span.name for span in collector.spans if span.parent is None and (span.start_time or 0) >= began]
    assert set(roots) == {"send tick", "process tick"}


async def test_metrics_count_and_time_adds_and_runs(database_url: str, collector: Collector) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    plugin = collector.plugin(meter_provider=provider)

    async def works() -> None: ...

    async def fails() -> None:
        raise KeyError("no")

    async with make_worker_utils(connection_string=database_url, plugins=[plugin]) as utils:
        await utils.add_jobs([JobSpec("works") for _ in range(3)])
        await utils.add_job("fails")
        with pytest.raises(InvalidArgumentError):
            await utils.add_job("fails", object())
    tasks = {"works": works, "fails": fails}
    await run_once(connection_string=database_url, task_list=tasks, plugins=[plugin])
    found: dict[tuple[str, ...], Any] = {}
    data = reader.get_metrics_data()
    assert data is not None
    declared = {metric.name: metric for metric in INSTRUMENTS}
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        points: Any = metric.data.data_points
        known = declared.pop(metric.name)
        assert (metric.unit, metric.description) == (known.unit, known.help)
        for point in points:
            labels: Any = point.attributes
            assert set(known.labels) - {"error.type"} <= set(labels) <= set(known.labels)
            assert tuple(getattr(point, "explicit_bounds", ())) == known.buckets
            key = [metric.name, labels["messaging.operation.name"], labels["messaging.destination.name"]]
            found[(*key, labels.get("error.type", ""))] = getattr(point, "value", None) or point.count
    assert declared == {}
    assert found == {
        ("messaging.client.sent.messages", "send", "works", ""): 3,
        ("messaging.client.sent.messages", "send", "fails", ""): 1,
        ("messaging.client.sent.messages", "send", "fails", "InvalidArgumentError"): 1,
        ("messaging.client.operation.duration", "send", "works", ""): 1,
        ("messaging.client.operation.duration", "send", "fails", ""): 1,
        ("messaging.client.operation.duration", "send", "fails", "InvalidArgumentError"): 1,
        ("messaging.client.consumed.messages", "process", "works", ""): 3,
        ("messaging.client.consumed.messages", "process", "fails", "KeyError"): 1,
        ("messaging.process.duration", "process", "works", ""): 3,
        ("messaging.process.duration", "process", "fails", "KeyError"): 1,
    }
    provider.shutdown()


async def test_failures_of_tracing_fail_nothing_and_are_logged_once(
    database_url: str, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Sampler):
        def should_sample(self, *args: Any, **options: Any) -> Any:
            raise RuntimeError("no sample today")

        def get_description(self) -> str:
            return "broken"

    async def works() -> None: ...

    plugin = Collector(Broken()).plugin()
    async with make_worker_utils(connection_string=database_url, plugins=[plugin]) as utils:
        for _ in range(3):
            await utils.add_job("works", {"a": 1})
    assert [json.loads(row["payload"]) for row in await jobs.all()] == [{"a": 1}] * 3
    await run_once(connection_string=database_url, task_list={"works": works}, plugins=[plugin])
    assert await jobs.count() == 0
    records = [record for record in caplog.records if record.name == "graphile_worker.opentelemetry"]
    assert [record.getMessage() for record in records] == [
        "tracing failed while adding jobs; later failures are not logged"
    ]


async def test_two_plugins_make_one_span_and_options_are_checked(
    database_url: str, collector: Collector
) -> None:
    plugins = [collector.plugin(), collector.plugin()]
    async with make_worker_utils(connection_string=database_url, plugins=plugins) as utils:
        await utils.add_job("one")
    assert len(collector.spans) == 1
    with pytest.raises(ConfigError, match="'link' or 'parent'"):
        OpenTelemetryPlugin(relation="child")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="tasks: expected a function"):
        OpenTelemetryPlugin(tasks=["a"])  # type: ignore[arg-type]


def test_a_context_passes_to_another_process_as_text(collector: Collector) -> None:
    assert context_as_text() is None
    token = attach(baggage.set_baggage("tenant", "seven"))
    with collector.tracer.start_as_current_span("parent"):
        text = context_as_text()
    detach(token)
    with context_from_text(text), collector.tracer.start_as_current_span("child"):
        assert baggage.get_baggage("tenant") == "seven"
    assert is_child(collector.one("child"), collector.one("parent"))
    for nothing in (None, "", "{}", "[]", '{"trace_id": "1", "span_id": "2"}'):
        with context_from_text(nothing):
            assert not trace.get_current_span().get_span_context().is_valid


def test_traces_are_sampled_by_their_ids_as_the_sdk_does() -> None:
    half = Collector(ParentBasedTraceIdRatio(0.5))
    start = root_starter(half.tracer, ROOT)
    assert start is not None
    spans = [start("process", ROOT, SpanKind.CONSUMER) for _ in range(400)]
    for span in spans:
        span.end()
    sampler = TraceIdRatioBased(0.5)
    for span in spans:
        context = span.get_span_context()
        decision = sampler.should_sample(None, context.trace_id, "process").decision
        assert context.is_valid
        assert decision.is_sampled() == context.trace_flags.sampled  # type: ignore[no-untyped-call]
    assert len({span.get_span_context().trace_id for span in spans}) == 400
    assert len(half.spans) == sum(span.get_span_context().trace_flags.sampled for span in spans)
    assert 100 < len(half.spans) < 300
    parent = trace.set_span_in_context(spans[0])
    assert start("child", parent, SpanKind.CONSUMER).get_span_context().trace_id == (
        spans[0].get_span_context().trace_id
    )
    assert root_starter(Collector(ALWAYS_ON).tracer, ROOT) is None
    assert root_starter(trace.NoOpTracer(), ROOT) is None


async def test_a_task_in_a_process_continues_the_trace_of_its_job(
    database_url: str, jobs: Jobs, collector: Collector, tmp_path: Path
) -> None:
    file = tmp_path / "trace"
    await jobs.add("note_trace", {"file": str(file)})
    await run_once(connection_string=database_url, task_list=[note_trace], plugins=[collector.plugin()])
    span = collector.one("process note_trace")
    assert file.read_text() == f"{span.context.trace_id:032x} {span.context.span_id:016x}"


async def test_a_program_gets_the_trace_of_its_job_and_spans_name_the_server(
    database_url: str, collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", "of the worker itself")
    program = tmp_path / "tasks" / "note"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf %s "$TRACEPARENT $BAGGAGE" > {tmp_path}/seen\n')
    program.chmod(0o755)
    token = attach(baggage.set_baggage("tenant", "blue"))
    try:
        async with make_worker_utils(connection_string=database_url, plugins=[collector.plugin()]) as utils:
            await utils.add_job("note")
    finally:
        detach(token)
    await run_once(
        connection_string=database_url, task_directory=str(program.parent), plugins=[collector.plugin()]
    )
    context = collector.one("process note").context
    seen = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x} tenant=blue"
    assert (tmp_path / "seen").read_text() == seen
    (address,) = Dsn.parse(database_url).addresses
    for name in ("send note", "process note"):
        found = attributes(collector.one(name))
        assert found["graphile_worker.schema"] == "graphile_worker"
        assert found["server.address"].startswith(address[0])
        assert found.get("server.port") == (None if address[0].startswith("/") else address[1])


def test_the_server_is_named_if_it_is_known() -> None:
    def server(url: str) -> tuple[str | None, int | None]:
        target = target_of("jobs", Dsn.parse(url))
        return target.address, target.port

    assert server("postgresql://db.example:6432/app") == ("db.example", 6432)
    assert server("postgresql:///app?host=/run/postgresql") == ("/run/postgresql/.s.PGSQL.5432", None)
    assert server("postgresql://one,two/app") == (None, None)
    assert target_of("jobs", object()).address is None
