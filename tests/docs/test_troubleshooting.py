"""The page about troubleshooting: a place for each check of the doctor, and output that is real.

Blocks of the page that show the output of a command with a running worker are compared with that output;
other hosts and numbers are the same.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from docs.blocks import ROOT, blocks_of
from graphile_worker import Limit, WorkerUtils, make_worker_utils, task
from graphile_worker.cli.commands.doctor import _print as print_findings
from graphile_worker.diagnostics.explanation.values import WORDS, words
from graphile_worker.diagnostics.facts import OldTransaction, TableFacts
from graphile_worker.diagnostics.finding import Finding, Thresholds
from graphile_worker.diagnostics.job_checks import check_table, check_transactions
from graphile_worker.values.schema_name import SchemaName
from recovery.dead import QUICK, Graveyard
from support.command_line import Call, in_this_process
from support.working import SCHEMA, SELDOM, Gate, Jobs, Workers, until

PAGE = ROOT / "docs" / "troubleshooting.md"
DIAGNOSTICS = ROOT / "src" / "graphile_worker" / "diagnostics"
OPTIONS = QUICK | {"sweep_interval": SELDOM, "prefetch": 0, "concurrency": 1}
OLD = "now() - interval '8 minutes'"
SHOWN = [block.text.strip() for block in blocks_of(PAGE) if block.language == "text"]


def alike(text: str) -> str:
    """The text with one host, one id and one number in place of all."""
    text = re.sub(rf"\b({re.escape(socket.gethostname())}|somewhere)\b", "web-1", text)
    text = re.sub(r"\d+(,\d+)*(\.\d+)?", "0", re.sub(r"\bpool-[\w-]+", "pool-0", text))
    return re.sub(r"(?<=\S) +", " ", text)  # columns are as wide as their values


def assert_shown(output: str) -> None:
    """The output is in a block of the page, from its first line or from one that a `…` stands for."""
    output = alike(output.strip())
    patterns = [re.escape(alike(block)).replace("…", ".*?") for block in SHOWN]
    assert any(re.fullmatch(pattern, output, re.DOTALL) for pattern in patterns), output


def reason(shown: str) -> str:
    """What `show` says after the fields."""
    return shown.rpartition("\n\n")[2]


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, database_url: str) -> Call:
    monkeypatch.setenv("DATABASE_URL", database_url)
    return in_this_process(capsys, monkeypatch)


async def show(call: Call, job_id: int) -> str:
    return reason((await asyncio.to_thread(call, "show", job_id)).check().out)


async def make_old(jobs: Jobs) -> None:
    await jobs.connection.execute(f"update {SCHEMA}._private_jobs set run_at = {OLD}, created_at = {OLD}")


# -- places ------------------------------------------------------------------------------------------------


def test_every_check_of_the_doctor_has_a_place_and_no_other() -> None:
    source = "".join(path.read_text() for path in DIAGNOSTICS.glob("*.py"))
    checks = set(re.findall(r"(?:\bFinding\(|\bwell\(|\b_check\()\s*\"(\w+)\"", source))
    assert len(checks) == 20
    anchors = set(re.findall(r'<a id="(check-\w+)"></a>', PAGE.read_text()))
    assert {Finding(check, "error", "").page for check in checks} == {
        f"{PAGE.name}#{name}" for name in anchors
    }


def test_the_table_of_reasons_leads_to_every_reason() -> None:
    text = PAGE.read_text().casefold()
    places = {
        "paused_everything": "every task is paused",
        "paused_task": "the task, the queue or every task is paused",
        "paused_queue": "the task, the queue or every task is paused",
        "queue_busy": "is busy, or is locked",
        "queue_lock_lost": "is locked and no job of it is known to run",
        "workers_unknown": None,  # without the tables of this package; `check-schema` says so
        "no_worker": "no worker is running",
        "unknown_task": "no running worker has the task",
        "workers_paused": "all workers that have the task are paused or stopping",
        "limit_concurrency": "is reached, or has no start left",
        "limit_rate": "is reached, or has no start left",
        "flags": "the worker with the task refuses the flag",
        "slots_busy": "all slots are busy",
        "blocked_loop": "the event loop is blocked",
        "not_listening": "notifications do not reach the workers",
        "clock": "the clock of a worker with the task is wrong",
        "overdue": "workers have free slots and do not take it",
    }
    assert places.keys() == WORDS.keys()
    assert [kind for kind, place in places.items() if place is not None and place not in text] == []
    assert words("clock") in text


# -- output ------------------------------------------------------------------------------------------------


def test_a_job_that_does_not_exist(call: Call) -> None:
    result = call("show", 99)
    assert result.status == 1
    assert_shown(result.err)


async def test_the_doctor_about_jobs_without_a_worker(call: Call, jobs: Jobs) -> None:
    await jobs.add("send_email")
    await make_old(jobs)
    out = (await asyncio.to_thread(call, "doctor")).out
    assert_shown(next(part for part in out.split("\n\n") if "waiting:" in part))


async def test_a_misspelt_task(call: Call, jobs: Jobs, workers: Workers) -> None:
    await workers.start({"send_email": Gate()}, **OPTIONS)
    assert_shown(await show(call, await jobs.add("send_emial")))


async def test_a_busy_queue(call: Call, jobs: Jobs, workers: Workers) -> None:
    gate = Gate()
    await jobs.add("sync", {"n": 1}, queue="customer:7")
    await workers.start({"sync": gate}, **(OPTIONS | {"concurrency": 2}))
    await gate.until_inside(1)
    waiting = await jobs.add("sync", {"n": 2}, queue="customer:7")
    await jobs.connection.execute(
        f"update {SCHEMA}._private_job_queues set locked_at = now() - interval '12 seconds'"
    )
    assert_shown(await show(call, waiting))
    gate.open_all()


async def test_a_limit_that_is_reached(call: Call, utils: WorkerUtils, workers: Workers) -> None:
    gate = Gate()

    @task(limit=Limit("openai", concurrency=1))
    async def summarize(payload: dict[str, int]) -> None:
        await gate(payload)

    await utils.add_job(summarize, {"n": 1})
    await workers.start([summarize], **OPTIONS)
    await gate.until_inside(1)
    waiting = await utils.add_job(summarize, {"n": 2})
    assert_shown(await show(call, waiting.id))
    gate.open_all()


async def test_flags_that_are_refused(call: Call, jobs: Jobs, workers: Workers) -> None:
    await workers.start({"render": Gate()}, **OPTIONS, forbidden_flags=["gpu"])
    assert_shown(await show(call, await jobs.add("render", flags=["gpu"])))


async def test_slots_that_are_all_busy(call: Call, jobs: Jobs, workers: Workers, connection: Any) -> None:
    gate = Gate()
    await jobs.add("resize", {"n": 1})
    await workers.start({"resize": gate}, **OPTIONS)
    await gate.until_inside(1)
    await jobs.add("resize", {"n": 2})
    waiting = await jobs.add("resize", {"n": 3})

    async def is_reported() -> bool:
        row = await connection.fetchrow(f"select running from {SCHEMA}._private_py_workers")
        return row["running"] not in (None, "[]")

    await until(is_reported)
    assert_shown(await show(call, waiting))
    gate.open_all()


async def test_a_dead_worker(call: Call, jobs: Jobs, connection: Any) -> None:
    graveyard = Graveyard(connection)
    await graveyard.bury("pool-dead", lost_for=timedelta(minutes=2).total_seconds())
    job_id = await jobs.add("send_email")
    await graveyard.give("pool-dead", job_id)
    await connection.execute(
        f"update {SCHEMA}._private_jobs set locked_at = now() - interval '1 minute' where id = $1", job_id
    )
    assert_shown(await show(call, job_id))


async def test_a_job_that_was_recovered(call: Call, jobs: Jobs, connection: Any) -> None:
    graveyard = Graveyard(connection)
    await graveyard.bury("pool-dead")
    await graveyard.give("pool-dead", await jobs.add("send_email"))
    (await asyncio.to_thread(call, "sweep")).check()
    assert_shown((await asyncio.to_thread(call, "show", 1)).check().out)


async def test_the_list_of_workers(call: Call, jobs: Jobs, workers: Workers, utils: WorkerUtils) -> None:
    gate = Gate()
    await jobs.add("resize", {"n": 1})
    await workers.start({"resize": gate}, **OPTIONS)
    await gate.until_inside(1)

    async def is_reported() -> bool:
        (worker,) = await utils.workers.list()
        return bool(worker.running) and worker.load is not None and worker.load.cpu is not None

    await until(is_reported)
    assert_shown((await asyncio.to_thread(call, "workers")).check().out)
    gate.open_all()


def test_what_holds_vacuum_back(capsys: pytest.CaptureFixture[str]) -> None:
    table = TableFacts(
        live=1200, dead=410_000, table_bytes=60_000_000, index_bytes=20_000_000, row_bytes=150, changes=0,
        vacuumed_ago=3 * 3600.0, analysed_ago=None, settings=[],
    )  # fmt: skip
    session = OldTransaction(
        kind="session", name="4711", what="shop, report.py, idle in transaction", age=7200.0
    )
    print_findings([*check_table(table, SchemaName(), Thresholds()), *check_transactions([session])])
    assert_shown(capsys.readouterr().out)
