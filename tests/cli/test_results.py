"""`add --wait` and `show`: results, ends, errors and progress on the command line."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cli.running import running_in
from cli.terminal import Terminal
from graphile_worker import JobHelpers, WorkerUtils, make_worker_utils, task
from support.cases import looped
from support.command_line import COMMAND, Call, clean_environment
from support.working import PATIENCE, SCHEMA, Jobs, Workers, until


@task
async def add_up(payload: list[int]) -> int:
    return sum(payload)


@task
async def greet(payload: Any) -> str:
    return "hello\tyou"


@task
async def nothing(payload: Any) -> None: ...


@task
async def fail(payload: Any) -> None:
    raise ValueError("no product")


TASKS = [add_up, greet, nothing, fail]
JOB_KEYS = [
    "id", "task_identifier", "state", "queue_name", "payload", "priority", "run_at", "attempts",
    "max_attempts", "last_error", "created_at", "updated_at", "key", "locked_at", "locked_by", "revision",
    "failed_at", "attempts_made", "flags", "history", "errors", "progress", "is_cancelled", "cancel_reason",
    "explanation",
]  # fmt: skip


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


async def run(call: Call, url: str, *arguments: object) -> Any:
    """The command, in a thread because workers run on this event loop."""
    return await asyncio.to_thread(call, *arguments, DATABASE_URL=url)


# -- add --wait --------------------------------------------------------------------------------------------


async def test_the_result_is_printed(call: Call, database_url: str, workers: Workers) -> None:
    await workers.start(TASKS)
    result = await run(call, database_url, "add", "add_up", "[1, 2, 3]", "--wait")
    assert (result.status, result.out) == (0, "6\n")
    assert "Added job 1: add_up" in result.err
    as_json = (await run(call, database_url, "add", "add_up", "[2]", "--wait", "--json")).check().json
    assert (as_json["id"], as_json["state"], as_json["result"], as_json["error"]) == (2, "completed", 2, None)
    text = await run(call, database_url, "add", "greet", "--wait", "--wait-timeout", "5m")
    assert (text.status, text.out) == (0, "hello\N{REPLACEMENT CHARACTER}you\n")
    none = await run(call, database_url, "add", "nothing", "--wait")
    assert (none.status, none.out) == (0, "")
    assert "without a result" in none.err


async def test_a_failure_ends_with_status_1(call: Call, database_url: str, workers: Workers) -> None:
    await workers.start(TASKS)
    result = await run(call, database_url, "add", "fail", "--wait", "--max-attempts", 1)
    assert (result.status, result.out) == (1, "")
    assert "Job 1 failed permanently, its only attempt used: ValueError: no product" in result.err
    assert "graphile-worker show 1" in result.err


def test_a_timeout_says_how_to_go_on(gw: Call) -> None:
    result = gw("add", "work", "--wait", "--wait-timeout", "1s")
    assert (result.status, result.out) == (1, "")
    assert "Job 1 has not ended within 1 s: it still waits for a worker." in result.err
    assert "graphile-worker show 1 --follow" in result.err
    as_json = gw("add", "work", "--wait", "--wait-timeout", "1", "--json", "--run-at", "1d")
    assert (as_json.status, as_json.json["state"]) == (1, "scheduled")


async def test_a_job_that_another_runtime_completed(
    call: Call, database_url: str, workers: Workers, jobs: Jobs
) -> None:
    waiting = asyncio.ensure_future(run(call, database_url, "add", "work", "--wait"))

    async def is_added() -> bool:
        return await jobs.count() == 1

    await until(is_added)
    await jobs.connection.execute(f"delete from {SCHEMA}._private_jobs")
    result = await waiting
    assert result.status == 1
    assert "Job 1 is gone and was not kept: only Python workers keep finished jobs" in result.err


@looped(
    ("arguments", "complaint"),
    [
        (["add", "work", "--wait-timeout", "5s"], "--wait-timeout is for --wait."),
        (["add", "--from", "-", "--wait"], "--from cannot be combined with a task or its options."),
        (
            ["add", "work", "--wait", "--wait-timeout", "soon"],
            "'soon' is not a period such as 30s, 5m or 1h30m",
        ),
        (["show", "1", "2", "--follow"], "--follow takes one ID."),
    ],
)
def test_wrong_usage(gw: Call, arguments: list[str], complaint: str) -> None:
    result = gw(*arguments)
    assert result.status == 2
    assert complaint in result.err


# -- show --------------------------------------------------------------------------------------------------


async def test_a_job_that_is_gone(
    call: Call, database_url: str, workers: Workers, utils: WorkerUtils
) -> None:
    job = await utils.add_job(add_up, [1, 2], keep=True, keep_payload=True, queue_name="serial")
    await workers.once(TASKS)
    shown = await run(call, database_url, "show", job.id)
    fields = dict(line.split(None, 1) for line in shown.check().out.splitlines() if not line.startswith(" "))
    assert (fields["task_identifier"], fields["state"], fields["result"]) == ("add_up", "completed", "3")
    assert fields["attempts"] == "1 of 25"
    assert fields["worker"].startswith("otpool-")
    assert {"took", "finished_at", "payload"} <= fields.keys()
    as_json = (await run(call, database_url, "show", job.id, "--json")).json
    assert list(as_json) == JOB_KEYS
    assert (as_json["state"], as_json["queue_name"], as_json["payload"]) == ("completed", "serial", [1, 2])
    assert [end["result"] for end in as_json["history"]] == [3]


async def test_errors_of_every_attempt(call: Call, database_url: str, workers: Workers, jobs: Jobs) -> None:
    job_id = await jobs.add("fail", max_attempts=2)
    await workers.once(TASKS)
    await jobs.make_due()
    await workers.once(TASKS)
    shown = (await run(call, database_url, "show", job_id)).check()
    assert shown.out.count("no product") > 2
    assert "Traceback of attempt 2\nTraceback (most recent call last):" in shown.out
    assert "Traceback of attempt 1" not in shown.out
    assert "--all" in shown.err
    assert "Finished earlier" not in shown.out
    everything = (await run(call, database_url, "show", job_id, "--all")).check()
    assert "Traceback of attempt 1" in everything.out
    errors = (await run(call, database_url, "show", job_id, "--json")).json["errors"]
    assert [(error["attempt"], error["is_final"]) for error in errors] == [(2, True), (1, False)]


async def test_a_job_whose_end_was_not_kept_still_has_its_errors(
    call: Call, database_url: str, workers: Workers, jobs: Jobs
) -> None:
    job_id = await jobs.add("fail")
    await workers.once(TASKS)
    await jobs.connection.execute(f"delete from {SCHEMA}._private_jobs")
    shown = (await run(call, database_url, "show", job_id)).check()
    assert "gone; it was not kept" in shown.out
    assert "Traceback of attempt 1" in shown.out
    assert (await run(call, database_url, "show", job_id, "--json")).json["state"] == "gone"


def test_without_a_history_the_row_is_shown(gw: Call, database_url: str, server: Any) -> None:
    job_id = gw("add", "work", "--json").check().json["id"]
    server.run(
        database_url,
        lambda connection: connection.execute(
            f"drop table {SCHEMA}._private_py_history, {SCHEMA}._private_py_errors"
        ),
    )
    assert gw("show", job_id, "--json").check().json["state"] == "ready"
    result = gw("show", 99)
    assert result.status == 1
    assert "99: no such job, and the history cannot be read" in result.err


# -- show --follow -----------------------------------------------------------------------------------------


class Export:
    """A task that reports progress and goes on when it is told."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

        @task
        async def export(payload: Any, helpers: JobHelpers) -> str:
            await helpers.progress(0.25, "page 1 of 4")
            await self.go_on.wait()
            return "exported"

        self.task = export


async def test_following_in_a_pipe(
    database_url: str, workers: Workers, utils: WorkerUtils, place: Path
) -> None:
    export = Export()
    job = await utils.add_job(export.task, keep=True)
    await workers.start([export.task])
    with running_in(place) as start:
        process = await asyncio.to_thread(start, "show", job.id, "--follow", DATABASE_URL=database_url)
        await until(lambda: f"job {job.id}: 25%  page 1 of 4" in process.output)
        export.go_on.set()
        assert await asyncio.to_thread(process.process.wait, PATIENCE) == 0
        await until(lambda: "exported" in process.output)


async def test_ctrl_c_stops_following(database_url: str, utils: WorkerUtils, place: Path) -> None:
    job = await utils.add_job("work", keep=True)
    with running_in(place) as start:
        process = await asyncio.to_thread(start, "show", job.id, "--follow", DATABASE_URL=database_url)
        await until(lambda: "waiting for a worker" in process.output)
        process.send(signal.SIGINT)
        assert await asyncio.to_thread(process.process.wait, PATIENCE) == 130
        await until(lambda: "the job itself continues" in process.output)
        assert "Traceback" not in process.output
    assert (await job.status()).state == "ready"


async def test_a_bar_on_a_terminal(
    database_url: str, workers: Workers, utils: WorkerUtils, place: Path
) -> None:
    export = Export()
    job = await utils.add_job(export.task, keep=True)
    await workers.start([export.task])
    with (place / "out").open("w+") as out:
        terminal = Terminal(
            [*COMMAND, "show", str(job.id), "--follow", "--json"],
            clean_environment(DATABASE_URL=database_url),
            place,
            columns=80,
            stdout=out.fileno(),
        )
        try:
            await asyncio.to_thread(terminal.until_says, "25%", "page 1 of 4")
            export.go_on.set()
            assert await asyncio.to_thread(terminal.wait) == 0
            out.seek(0)
            assert json.load(out)["history"][0]["result"] == "exported"
        finally:
            terminal.close()
