"""JSON lines name the trace in which they were written: that of OpenTelemetry, or of Sentry."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from graphile_worker import make_worker_utils, run_once, task
from graphile_worker.contrib.opentelemetry import OpenTelemetryPlugin
from graphile_worker.contrib.sentry import SentryPlugin
from graphile_worker.hooks import Plugin
from graphile_worker.logging import JsonFormatter
from support.sentry import sentry_keeping

shop = logging.getLogger("shop")


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    """What is logged, as JSON."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    before = root.level
    root.setLevel(logging.INFO)
    yield stream
    root.removeHandler(handler)
    root.setLevel(before)


async def lines_of_jobs(url: str, plugin: Plugin, output: io.StringIO) -> dict[str, dict[str, Any]]:
    """Run two jobs at once and one in a thread; the lines by message."""
    both = asyncio.Barrier(2)

    @task
    async def in_coroutine(payload: str, helpers: Any) -> None:
        await both.wait()
        shop.info(payload)
        helpers.logger.info("by the helpers, %s", payload)
        await both.wait()

    @task
    def in_thread(payload: str) -> None:
        shop.info(payload)

    async with make_worker_utils(connection_string=url) as utils:
        for task_, payload in ((in_coroutine, "one"), (in_coroutine, "two"), (in_thread, "three")):
            await utils.add_job(task_, payload)
    await run_once(
        connection_string=url,
        task_list=[in_coroutine, in_thread],
        plugins=[plugin],
        concurrency=3,
        handle_signals=False,
    )
    return {line["msg"]: line for line in map(json.loads, output.getvalue().splitlines())}


async def test_lines_of_tasks_name_the_span_of_opentelemetry(database_url: str, output: io.StringIO) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    lines = await lines_of_jobs(database_url, OpenTelemetryPlugin(tracer_provider=provider), output)
    spans = {
        (span.attributes or {})["messaging.message.id"]: span.context
        for span in exporter.get_finished_spans()
    }
    assert len(spans) == 3
    for number, text in enumerate(("one", "two", "three"), 1):
        context, line = spans[str(number)], lines[text]
        assert context is not None
        assert line["job_id"] == number
        assert line["trace_id"] == f"{context.trace_id:032x}"
        assert line["span_id"] == f"{context.span_id:016x}"
    assert lines["by the helpers, two"]["trace_id"] == lines["two"]["trace_id"] != lines["one"]["trace_id"]
    assert not any(
        "trace_id" in line for line in lines.values() if line["logger"] == "graphile_worker.worker"
    )


@pytest.mark.parametrize("mode", ["static", "stream"])
async def test_lines_of_tasks_name_the_span_of_sentry(
    database_url: str, output: io.StringIO, mode: Any
) -> None:
    with sentry_keeping(mode):
        lines = await lines_of_jobs(database_url, SentryPlugin(), output)
    traces = {lines[text]["trace_id"] for text in ("one", "two", "three")}
    assert len(traces) == 3
    assert all(len(trace) == 32 for trace in traces)
    assert len(lines["three"]["span_id"]) == 16


def test_lines_outside_a_trace_have_none_and_nothing_is_imported() -> None:
    program = """
import logging, sys
from graphile_worker.logging import configure_logging
configure_logging("json")
logging.getLogger("shop").info("hello")
assert not {"opentelemetry", "sentry_sdk"} & set(sys.modules)
"""
    line = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert "trace_id" not in json.loads(line)
