"""Jobs that expire: by the flag of a single job, and what the history, waiters and redactors see of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from graphile_worker import JobSpec, Snooze, WorkerUtils, make_worker_utils, task
from graphile_worker.errors import InvalidArgumentError, JobCancelledError
from graphile_worker.hooks import Hooks
from graphile_worker.options import HistoryFilter
from graphile_worker.values.attempts import Expiry, expiry_flag, expiry_of
from support.cases import looped
from support.working import PATIENCE, SCHEMA, Jobs, Workers

HOUR = timedelta(hours=1)
HISTORY = f"{SCHEMA}._private_py_history"


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


async def make_old(jobs: Jobs, *, hours: int) -> None:
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set run_at = run_at - $1 * interval '1 hour', "
        "created_at = created_at - $1 * interval '1 hour'",
        hours,
    )


# -- the flag ----------------------------------------------------------------------------------------------


@looped(
    ("expires", "flag"),
    [
        (timedelta(minutes=5), "py:expires=+300"),
        (timedelta(milliseconds=1500), "py:expires=+1.5"),
        (datetime(2026, 11, 16, tzinfo=UTC), "py:expires=1794787200"),
        (datetime(2026, 11, 16, 1, tzinfo=timezone(HOUR)), "py:expires=1794787200"),
        (datetime(2026, 11, 16, 0, 0, 0, 250_000, tzinfo=UTC), "py:expires=1794787200.25"),
    ],
)
def test_a_spec_says_it_with_a_flag(expires: Any, flag: str) -> None:
    spec = JobSpec("code", expires=expires, flags=["mine"], keep=True)
    assert spec.flags == ("mine", flag, "py:keep")
    assert set(spec.replace(priority=1).flags or ()) == {"mine", flag, "py:keep"}
    later = spec.replace(expires=timedelta(days=1))
    assert set(later.flags or ()) == {"mine", "py:keep", "py:expires=+86400"}
    expiry = expiry_of(json.dumps(dict.fromkeys(spec.flags, True)))
    assert expiry == Expiry(float(flag.partition("=")[2]), isinstance(expires, timedelta))


@looped(
    ("wrong", "message"),
    [
        (datetime(2026, 11, 16), "has no time zone"),
        (timedelta(0), "expected more than 0 seconds"),
        (-HOUR, "expected more than 0 seconds"),
        (300, "expected a time or a timedelta, got 300"),
        ("1h", "expected a time or a timedelta, got '1h'"),
    ],
)
def test_what_is_no_time_is_refused(wrong: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"expires: .*{message}"):
        JobSpec("code", expires=wrong)


@looped("text", ["", "soon", "+", "nan", "inf", "+inf", "1e999", "0x10", "2026-11-16"])
def test_a_flag_that_another_program_got_wrong_is_ignored(text: str) -> None:
    assert expiry_of(json.dumps({f"py:expires={text}": True})) is None
    assert expiry_of(json.dumps({f"not py:expires={text}": True})) is None


def test_flags_without_it() -> None:
    assert expiry_of(None) is None
    assert expiry_of('{"py:keep": true}') is None
    assert expiry_of('"py:expires=1"') is None
    assert expiry_flag(timedelta(days=100)) == "py:expires=+8640000"


# -- at work -----------------------------------------------------------------------------------------------


async def test_a_job_expires_as_it_says_itself(jobs: Jobs, workers: Workers, utils: WorkerUtils) -> None:
    ran: list[str] = []

    @task
    async def code(payload: str) -> None:
        ran.append(payload)

    @task(expires=timedelta(minutes=1))
    def strict(payload: str) -> None:
        ran.append(payload)

    now = datetime.now(UTC)
    await utils.add_job(code, "late", expires=HOUR)
    await utils.add_job(code, "late by a time, in a queue", expires=now - HOUR, queue_name="q")
    await utils.add_job(code, "late before it was due", expires=now - 5 * HOUR)
    await utils.add_job(code, "in time", expires=9 * HOUR, queue_name="q")
    await utils.add_job(code, "in time by a time", expires=now + HOUR)
    await utils.add_job(code, "kept", expires=HOUR, keep=True)
    await utils.add_job(strict, "the job overrides its task", expires=9 * HOUR)
    await utils.add_job(strict, "so does a time", expires=now + HOUR)
    await utils.add_job(strict, "late for its task")
    await jobs.add("code", "a flag that is wrong", flags=["py:expires=soon"])
    await make_old(jobs, hours=2)
    await utils.add_job(code, "due only now", expires=HOUR, run_at=timedelta(hours=-2))
    await workers.once([code, strict], concurrency=2, history="none")
    assert sorted(ran) == sorted(
        [
            "in time",
            "in time by a time",
            "the job overrides its task",
            "so does a time",
            "a flag that is wrong",
            "due only now",
        ]
    )
    assert await jobs.count() == await jobs.locked() == 0
    ends = await utils.history.list_finished()
    assert [(end.state, end.flags) for end in ends] == [
        ("expired", {"py:keep": True, "py:expires=+3600": True})
    ]


async def test_a_retry_of_a_job_with_a_deadline_expires(
    jobs: Jobs, workers: Workers, utils: WorkerUtils
) -> None:
    """A time holds for every attempt; a delay counts from the time of the retry."""
    ran: list[str] = []

    @task
    async def fail(payload: str) -> None:
        ran.append(payload)
        raise ValueError("no")

    soon = await utils.add_job(fail, "deadline", expires=datetime.now(UTC) + HOUR)
    each = await utils.add_job(fail, "delay", expires=HOUR)
    await workers.once([fail])
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set run_at = now() - interval '2 h' where id = $1", each.id
    )
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set run_at = now(), flags = $2 where id = $1",
        soon.id,
        json.dumps({f"py:expires={(datetime.now(UTC) - HOUR).timestamp():.0f}": True}),
    )
    await jobs.connection.execute(f"update {SCHEMA}._private_jobs set created_at = now() - interval '3 h'")
    await workers.once([fail])
    assert ran == ["deadline", "delay"]
    assert await jobs.count() == 0
    assert {(end.job_id, end.state) for end in await utils.history.list_finished()} == {
        (soon.id, "expired"),
        (each.id, "expired"),
    }


async def test_executables_expire_too(
    jobs: Jobs, workers: Workers, utils: WorkerUtils, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    folder = tmp_path / "tasks"
    folder.mkdir()
    script = folder / "script.sh"
    script.write_text(f"#!/bin/sh\ncat >> {ran}\n")
    script.chmod(0o755)
    await utils.add_job("script", {"n": 1}, expires=HOUR)
    await make_old(jobs, hours=2)
    await utils.add_job("script", {"n": 2}, expires=HOUR)
    await workers.once(None, task_directory=str(folder))
    assert '"n":2' in ran.read_text().replace(" ", "")
    assert '"n":1' not in ran.read_text().replace(" ", "")
    assert [end.state for end in await utils.history.list_finished()] == ["expired"]


# -- what is kept ------------------------------------------------------------------------------------------


async def test_the_end_of_an_expired_job(jobs: Jobs, workers: Workers, utils: WorkerUtils) -> None:
    @task(expires=HOUR)
    async def code(payload: Any) -> None:
        raise AssertionError("it has expired")

    handle = await utils.add_job(code, {"n": 1}, keep=True, keep_payload=True, queue_name="q", job_key="k")
    await make_old(jobs, hours=2)
    await workers.start([code])
    with pytest.raises(JobCancelledError, match=f"^job {handle.id} has expired, so its task was not") as why:
        await handle.result(timeout=PATIENCE)
    assert (why.value.has_expired, why.value.reason) == (True, None)
    (end,) = await utils.history.list_finished(HistoryFilter(state="expired", task_identifier="code"))
    assert (end.job_id, end.state, end.queue_name, end.key) == (handle.id, "expired", "q", "k")
    assert (end.payload, end.result, end.error) == ({"n": 1}, None, None)
    assert (end.started_at, end.duration) == (None, None)
    assert await utils.history.list_finished(HistoryFilter(state="completed")) == []
    status = await handle.status()
    assert (status.state, status.has_ended) == ("expired", True)
    record = await utils.jobs.get_record(handle)
    assert (record.state, record.errors) == ("expired", [])
    assert await utils.history.list_errors() == []


async def test_expired_and_completed_jobs_in_one_batch(
    jobs: Jobs, workers: Workers, utils: WorkerUtils
) -> None:
    @task(expires=HOUR, keep=True)
    async def code(payload: dict[str, int]) -> int:
        return payload["n"]

    old = await jobs.add_many("code", 40)
    await make_old(jobs, hours=2)
    late = set(old[::2])
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set created_at = now() where id <> all ($1)", list(late)
    )
    await workers.once([code], concurrency=8)
    ends = await jobs.connection.fetch(f"select job_id, state, result from {HISTORY}")
    assert {row["job_id"]: row["state"] for row in ends} == {
        job_id: "expired" if job_id in late else "completed" for job_id in old
    }
    assert len(ends) == 40
    assert {row["result"] is None for row in ends if row["state"] == "expired"} == {True}


# -- redaction ---------------------------------------------------------------------------------------------


def hide(part: str, task_identifier: str, value: Any) -> Any:
    assert part == "payload"
    return {**value, "card": "…"}


async def test_payloads_of_expired_jobs_are_redacted(jobs: Jobs, workers: Workers) -> None:
    hooks = Hooks()
    hooks.redact(hide)

    @task(expires=HOUR, keep=True, keep_payload=True)
    async def charge(payload: Any) -> None:
        raise AssertionError("it has expired")

    for n in range(3):
        await jobs.add("charge", {"card": "4242", "n": n})
    await make_old(jobs, hours=2)
    await workers.once([charge], hooks=hooks, concurrency=2)
    rows = await jobs.connection.fetch(f"select state, payload from {HISTORY} order by job_id")
    assert [(row["state"], json.loads(row["payload"])) for row in rows] == [
        ("expired", {"card": "…", "n": n}) for n in range(3)
    ]


async def test_payloads_of_snoozed_jobs_that_do_not_run_again_are_redacted(
    jobs: Jobs, workers: Workers
) -> None:
    """A job whose key is used again while it runs ends with its snooze."""
    hooks = Hooks()
    hooks.redact(hide)

    @task(keep=True, keep_payload=True)
    async def charge(payload: Any, helpers: Any) -> Snooze:
        if payload["n"] == 0:
            await helpers.add_job("nothing_runs_this", {}, job_key="k")
        return Snooze(6000)

    cut_off = await jobs.add("charge", {"card": "4242", "n": 0}, key="k")
    await jobs.add("charge", {"card": "4242", "n": 1})
    await workers.once([charge], hooks=hooks)
    (end,) = await jobs.connection.fetch(f"select job_id, state, payload from {HISTORY}")
    assert (end["job_id"], end["state"]) == (cut_off, "failed")
    assert json.loads(end["payload"]) == {"card": "…", "n": 0}


async def test_without_asking_no_payload_of_an_expired_job_is_kept(
    jobs: Jobs, workers: Workers, utils: WorkerUtils
) -> None:
    @task(expires=HOUR)
    async def charge(payload: Any) -> None:
        raise AssertionError("it has expired")

    await utils.add_job(charge, {"card": "4242"})
    await make_old(jobs, hours=2)
    await workers.once([charge])
    (end,) = await utils.history.list_finished()
    assert (end.state, end.payload) == ("expired", None)
