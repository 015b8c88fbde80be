"""What a new user of the first version did wrong, one test for each row of the report: what is printed now.

The mistakes that concern the command, the database and the crontab are in `test_newcomer_errors.py`.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from graphile_worker import make_worker_utils, run_once, task
from graphile_worker.database.statements import add
from graphile_worker.errors import InvalidArgumentError, InvalidPayloadError
from support.command_line import Call

TASKS = """
import asyncio
from dataclasses import dataclass

from graphile_worker import task
from graphile_worker.hooks import FailJob

once = task(max_attempts=1)

class Mailer: ...

@dataclass
class Charge:
    amount: int

@once
async def err_key():
    return {}["sku"]

@once
def err_exit():
    raise SystemExit(3)

@once
async def err_chain():
    try:
        {}["p"]
    except KeyError as error:
        raise RuntimeError("no product") from error

@once
async def err_group():
    async def wrong():
        raise ValueError("one of them")

    async with asyncio.TaskGroup() as group:
        group.create_task(wrong())

@once
async def needs_mailer(payload, helpers):
    helpers.extension(Mailer)

@once
async def declines():
    return FailJob("declined")

@once
async def forgets_to_await():
    return print_later()

async def print_later():
    print("later")

@task(max_attempts=4)
async def charge_card(payload: Charge): ...
"""


@pytest.fixture
def project(place: Path) -> Path:
    (place / "tasks").mkdir()
    (place / "tasks" / "mistakes.py").write_text(TASKS)
    return place


@pytest.fixture
def printed(gw: Call, project: Path) -> Any:
    """`printed("err_key")`: the log of a worker that runs one job of this task, without times."""

    def run(name: str) -> str:
        gw("add", name).check()
        result = gw("--once").check()
        return re.sub(r"(?m)^[-\d]+ [:.\d]+ |after [\d.]+ m?s ", "", result.out + result.err)

    return run


# -- F1: tracebacks and last errors --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "summary", "where"),
    [
        ("err_key", "KeyError: 'sku'", "tasks/mistakes.py, line 18, in err_key"),
        ("err_exit", "SystemExit: 3", "tasks/mistakes.py, line 22, in err_exit"),
        ("err_chain", "RuntimeError: no product", "tasks/mistakes.py, line 29, in err_chain"),
        ("err_group", "ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)", None),
    ],
)
def test_a_failure_has_its_traceback_and_a_last_error_with_type_and_place(
    printed: Any, gw: Call, project: Path, name: str, summary: str, where: str | None
) -> None:
    log = printed(name)
    head = f"ERROR [worker] task {name} (job 1) permanently failed on attempt 1 of 1: {summary}; "
    assert f"{head}it will not be retried\n    " in log
    assert "Traceback (most recent call last):" in log
    assert f'File "{project}/tasks/mistakes.py", line ' in log
    (job,) = gw("list", "--json").json
    assert job["last_error"].startswith(summary)
    if where is None:  # the members of a group follow
        assert "ValueError: one of them" in log
        assert "ValueError: one of them" in job["last_error"]
    else:
        assert f"at {where}" in job["last_error"]


# -- F2: application state ---------------------------------------------------------------------------------


def test_a_missing_extension_is_blamed_on_the_missing_app(printed: Any) -> None:
    assert (
        "no extension of type Mailer (given: none); yield one from the lifespan of your app (--app), "
        "or call run(extensions=[Mailer(...)])"
    ) in printed("needs_mailer")


def test_an_app_that_cannot_be_imported_does_not_lock_the_user_out(
    gw: Call, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "broken_app.py").write_text("import a_missing_package\n")
    monkeypatch.setenv("GRAPHILE_WORKER_APP", "broken_app:app")
    assert gw("list").err == (
        f"graphile-worker: error: {place}/broken_app.py:1: cannot be imported: ModuleNotFoundError: "
        "No module named 'a_missing_package'\n"
        'graphile-worker: hint: to run this command without the app: graphile-worker --app "" list\n'
    )
    assert gw("--app", "", "list", "--json").check().json == []
    assert "install the missing package there" in gw("--once").err


# -- F3: SQLAlchemy ------------------------------------------------------------------------------------------


async def test_a_session_is_accepted_and_what_is_taken_out_of_it_is_refused(
    database_url: str, connection: Any
) -> None:
    url = database_url.replace("postgres://", "postgresql://").replace("postgresql:", "postgresql+asyncpg:")
    engine = create_async_engine(url, poolclass=NullPool)
    async with make_worker_utils(connection_string=url) as utils:  # the URL of the application, as it is
        async with AsyncSession(engine) as session:
            await utils.add_job("rolled_back", connection=session)
            await session.rollback()
        async with engine.connect() as connected:
            await utils.add_job("rolled_back", connection=connected)
            raw: Any = await connected.get_raw_connection()
            with pytest.raises(
                InvalidArgumentError,
                match="connection: is a raw connection taken out of SQLAlchemy, which may not have begun "
                "your transaction yet; give the session or connection of SQLAlchemy itself",
            ):
                await utils.add_job("never", connection=raw)
    assert await connection.fetchval("select count(*) from graphile_worker.jobs") == 0


# -- F7 and F8: payloads and results -------------------------------------------------------------------------


async def test_a_payload_that_does_not_fit_is_refused_when_it_is_added(database_url: str) -> None:
    @task
    async def typed(payload: dict[str, int]) -> None: ...

    async with make_worker_utils(connection_string=database_url) as utils:
        with pytest.raises(InvalidPayloadError) as caught:
            await utils.add_job(typed, {"n": "x"})  # type: ignore[call-overload]
    assert str(caught.value) == (
        "payload: does not fit dict[str, int]: Expected `int`, got `str` - at `$[...]` (task 'typed')"
    )


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("countdown", "run_at"),
        ("max_retries", "max_attempts"),
        ("queue", "queue_name"),
        ("jobkey", "job_key"),
    ],
)
async def test_options_of_other_job_queues_are_refused_with_ours(
    database_url: str, option: str, meant: str
) -> None:
    options: Any = {option: 5}
    async with make_worker_utils(connection_string=database_url) as utils:
        with pytest.raises(TypeError) as caught:
            await utils.add_job("hello", **options)
    assert str(caught.value) == (
        f"add_job() got an unexpected keyword argument {option!r}; did you mean {meant!r}?"
    )


def test_the_answer_of_a_hook_is_no_success(printed: Any) -> None:
    assert (
        "task declines (job 1) permanently failed on attempt 1 of 1: the task returned FailJob, which only "
        "hooks may return; to fail the job, raise an exception; it will not be retried"
    ) in printed("declines")


def test_a_coroutine_that_was_not_awaited_is_awaited(printed: Any) -> None:
    log = printed("forgets_to_await")
    assert "later\n" in log
    assert "never awaited" not in log


# -- F9 and F10: misspelt tasks, failed jobs -----------------------------------------------------------------


async def test_a_misspelt_task_is_questioned_by_the_client(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    await run_once(connection_string=database_url, task_list={"typed": print}, handle_signals=False)
    async with make_worker_utils(connection_string=database_url) as utils:
        await utils.add_job("typd")
    assert caplog.messages == [
        "job 1 waits for the task 'typd', which no worker has registered; did you mean 'typed'?"
    ]


def test_the_doctor_says_how_to_retry_failed_jobs_and_that_works(gw: Call) -> None:
    gw("add", "declined").check()
    gw("fail", 1).check()
    said = " ".join(gw("doctor").out.split())
    assert "Run them again: `graphile-worker retry --all`." in said
    result = gw("retry", "--all", "--yes").check()
    assert result.out == "Retried 1 job (declined).\n"


def test_retrying_failed_jobs_without_attempts_names_the_whole_command(gw: Call) -> None:
    result = gw("reschedule", "--state", "failed", "--run-at", "now")
    assert result.status == 2
    assert "Failed jobs have no attempts left, so they would stay failed." in result.err
    assert "    graphile-worker reschedule --state failed --run-at now --attempts 0\n" in result.err


# -- smaller ones --------------------------------------------------------------------------------------------


def test_the_url_of_sqlalchemy_is_accepted(
    call: Call, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", f"postgresql+asyncpg://{database_url.partition('://')[2]}")
    assert call("list", "--json").check().json == []


def test_the_help_of_dev_says_that_it_ignores_the_environment(call: Call) -> None:
    text = " ".join(call("dev", "--help").check().out.split())
    assert "Use this database. [default: the embedded one; DATABASE_URL is ignored]" in text


@pytest.mark.usefixtures("project")
def test_the_options_of_a_task_hold_for_the_command_too(gw: Call) -> None:
    assert gw("add", "charge_card", '{"amount": 1}', "--json").check().json["max_attempts"] == 4
    assert "does not fit Charge: Expected `int`, got `str`" in gw("add", "charge_card", '{"amount": "1"}').err


def test_a_large_payload_is_warned_about(gw: Call, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(add, "_warned", set())  # once per process
    (place / "payload.json").write_text(f'"{"x" * 2_000_000}"')
    assert (
        "a job of task upload was added with a payload of 2.0 MB, which the database copies at every "
        "attempt; store the data elsewhere and pass a reference"
    ) in gw("add", "upload", "--payload-file", "payload.json").check().err


def test_swapped_parameters_are_refused_at_the_start(gw: Call, project: Path) -> None:
    (project / "tasks" / "hello.py").write_text("async def hello(helpers, payload): ...\n")
    assert gw("--once").err == (
        f"graphile-worker: error: {project}/tasks/hello.py:1: hello takes the helpers first; the order is "
        "(payload, helpers)\n"
    )


def test_the_way_that_only_a_program_has_is_not_offered_to_the_command(call: Call, project: Path) -> None:
    err = call("--once").err
    assert "no database was given" in err
    assert "pg_pool" not in err
