"""structlog and loguru: lines from coroutines, threads and two jobs at once name the right job."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from loguru import logger

from graphile_worker import make_worker_utils, run_once, task
from graphile_worker.contrib.loguru import LoguruPlugin, intercept
from graphile_worker.contrib.structlog import StructlogPlugin, processor
from graphile_worker.errors import ConfigError
from graphile_worker.hooks import Plugin


async def run_two_kinds(url: str, plugin: Plugin, log: Any) -> dict[str, dict[str, Any]]:
    """Run two jobs at once and one in a thread that all log; their ids and fields by payload."""
    both = asyncio.Barrier(2)

    @task
    async def in_coroutine(payload: str) -> None:
        await both.wait()
        log(payload)
        await both.wait()

    @task
    def in_thread(payload: str) -> None:
        log(payload)

    ids: dict[str, dict[str, Any]] = {}
    async with make_worker_utils(connection_string=url) as utils:
        for task_, payload in ((in_coroutine, "one"), (in_coroutine, "two"), (in_thread, "three")):
            job = await utils.add_job(task_, payload)
            ids[payload] = {"task": task_.identifier, "job_id": job.id, "attempt": 1}
    await run_once(
        connection_string=url,
        task_list=[in_coroutine, in_thread],
        plugins=[plugin],
        concurrency=3,
        handle_signals=False,
    )
    return ids


@pytest.fixture
def structured() -> Iterator[list[dict[str, Any]]]:
    """Configures structlog to keep its events."""
    kept: list[dict[str, Any]] = []

    def keep(_: Any, __: str, event: Any) -> Any:
        kept.append(dict(event))
        raise structlog.DropEvent

    structlog.configure(processors=[structlog.contextvars.merge_contextvars, keep])
    yield kept
    structlog.reset_defaults()


async def test_structlog_binds_the_job(database_url: str, structured: list[dict[str, Any]]) -> None:
    log = structlog.get_logger()
    jobs = await run_two_kinds(database_url, StructlogPlugin(["task", "job_id", "attempt"]), log.info)
    assert {event.pop("event"): event for event in structured} == jobs
    assert structlog.contextvars.get_contextvars() == {}


async def test_the_default_fields_are_those_of_json_lines(
    database_url: str, structured: list[dict[str, Any]]
) -> None:
    await run_two_kinds(database_url, StructlogPlugin(), structlog.get_logger().info)
    assert set(structured[0]) == {"event", "task", "job_id", "attempt", "worker_id", "pool_id"}


async def test_our_lines_go_through_the_processors_of_structlog(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "graphile_worker")
    await run_two_kinds(database_url, StructlogPlugin(), lambda text: logging.getLogger("shop").warning(text))
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[processor(), structlog.stdlib.add_log_level],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(),
        ],
    )
    lines = [json.loads(formatter.format(record)) for record in caplog.records]
    done = [line for line in lines if line.get("event_name") == "job:success"]
    assert sorted(line["job_id"] for line in done) == [1, 2, 3]
    assert {"task", "attempt", "worker_id", "pool_id", "level"} <= set(done[0])
    assert done[0]["event"].startswith("completed in") or "completed" in done[0]["event"]
    (three,) = [line for line in lines if line["event"] == "three"]
    assert "job_id" not in three  # it is formatted here after the job; a handler formats it within


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    """What loguru logs."""
    kept: list[Any] = []
    sink = logger.add(lambda message: kept.append(message.record), level="DEBUG", format="{message}")
    yield kept
    logger.remove(sink)


async def test_loguru_has_the_job_in_extra(database_url: str, lines: list[Any]) -> None:
    jobs = await run_two_kinds(database_url, LoguruPlugin(["task", "job_id", "attempt"]), logger.info)
    assert {record["message"]: record["extra"] for record in lines} == jobs


async def test_loguru_gets_our_lines(database_url: str, lines: list[Any]) -> None:
    plugin = LoguruPlugin(intercept="info")
    await run_two_kinds(database_url, plugin, lambda _: None)
    done = [record for record in lines if record["extra"].get("event") == "job:success"]
    assert sorted(record["extra"]["job_id"] for record in done) == [1, 2, 3]
    assert done[0]["level"].name == "INFO"
    assert done[0]["name"] == "graphile_worker.worker"
    assert "{" not in done[0]["message"]
    intercept("ERROR")
    lines.clear()
    await run_two_kinds(database_url, LoguruPlugin(), lambda _: None)
    assert lines == []
    try:
        raise ValueError("{braces}")
    except ValueError:
        logging.getLogger("graphile_worker.hooks").exception("an observer failed: %s", "{x}")
    (record,) = lines
    assert record["message"] == "an observer failed: {x}"
    assert record["exception"].type is ValueError


def test_a_wrong_field_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"names: there is no field 'jobid'; did you mean 'job_id'\?"):
        StructlogPlugin(["jobid"])
    with pytest.raises(ConfigError, match="names: expected a list of fields, got 'task'"):
        LoguruPlugin("task")
