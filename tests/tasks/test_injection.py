"""Keyword-only parameters of tasks: filled by type, or by functions."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest

from graphile_worker import App, Depends, Job, JobHelpers, run_once, task
from graphile_worker.errors import ConfigError, TaskLoadError
from support.cases import looped
from support.working import Jobs


class Mailer:
    """An extension."""

    def __init__(self) -> None:
        self.log: list[str] = []


def sender(mailer: Mailer, job: Job) -> str:
    mailer.log.append("sender")
    return f"job {job.id}"


def connection(mailer: Mailer) -> Iterator[str]:
    mailer.log.append("open")
    try:
        yield "connection"
    except ValueError as error:
        mailer.log.append(f"failed: {error}")
        raise
    finally:
        mailer.log.append("close")


async def session(connection: Annotated[str, Depends(connection)], mailer: Mailer) -> AsyncIterator[str]:
    mailer.log.append(f"begin on {connection}")
    yield "session"
    mailer.log.append("commit")


def broken() -> str:
    raise OSError("no server")


async def token() -> str:
    return "token"


async def run_job(jobs: Jobs, url: str, function: Any, mailer: Mailer | None = None) -> Mailer:
    mailer = mailer or Mailer()
    made = task(function)
    await jobs.add(made.identifier, {"n": 1}, max_attempts=1)
    await run_once(task_list=[made], connection_string=url, extensions=[mailer])
    return mailer


async def test_coroutines_get_extensions_and_results_of_functions(database_url: str, jobs: Jobs) -> None:
    got: list[Any] = []

    async def welcome(
        payload: dict[str, int],
        helpers: JobHelpers,
        *,
        mailer: Mailer,
        job: Job,
        logger: logging.Logger,
        session: Annotated[str, Depends(session)],
        connection: Annotated[str, Depends(connection)],
        token: Annotated[str, Depends(token)],
        sender: Annotated[str, Depends(sender)],
        optional: int = 3,
    ) -> None:
        got.extend(
            [payload, helpers.job is job, session, connection, token, sender == f"job {job.id}", optional]
        )
        mailer.log.append("task")

    mailer = await run_job(jobs, database_url, welcome)
    assert got == [{"n": 1}, True, "session", "connection", "token", True, 3]
    assert mailer.log == ["open", "begin on connection", "sender", "task", "commit", "close"]
    assert await jobs.all() == []


@pytest.mark.parametrize("shape", ["nothing", "payload", "helpers"])
async def test_functions_in_threads(shape: str, database_url: str, jobs: Jobs) -> None:
    got: list[Any] = []

    def nothing(*, sender: Annotated[str, Depends(sender)]) -> None:
        got.append(sender)

    def payload(payload: dict[str, int], *, sender: Annotated[str, Depends(sender)]) -> None:
        got.append(sender)

    def helpers(helpers: JobHelpers, *, sender: Annotated[str, Depends(sender)]) -> None:
        got.append(sender)

    function = {"nothing": nothing, "payload": payload, "helpers": helpers}[shape]
    await run_job(jobs, database_url, function)
    assert got[0].startswith("job ")


async def test_what_was_opened_is_closed_when_the_task_fails(database_url: str, jobs: Jobs) -> None:
    async def fails(*, connection: Annotated[str, Depends(connection)]) -> None:
        raise ValueError("no")

    mailer = await run_job(jobs, database_url, fails)
    assert mailer.log == ["open", "failed: no", "close"]
    (job,) = await jobs.all()
    assert job["last_error"] == "ValueError: no" or "no" in job["last_error"]


async def test_a_failing_function_fails_the_job_alone(database_url: str, jobs: Jobs) -> None:
    async def wants(*, value: Annotated[str, Depends(broken)]) -> None:
        raise AssertionError

    await run_job(jobs, database_url, wants)
    (job,) = await jobs.all()
    assert "no server" in job["last_error"]


async def test_a_missing_extension_is_found_at_the_start(database_url: str) -> None:
    async def wants(payload: Any, *, mailer: Mailer) -> None: ...

    with pytest.raises(ConfigError, match=r"'wants' cannot run in this worker.*Mailer"):
        await run_once(task_list=[task(wants)], connection_string=database_url)


def wants_nothing_known(*, value) -> None: ...  # type: ignore[no-untyped-def]


def wants_a_list(*, value: list[int] | None) -> None: ...


def wants_a_coroutine_in_a_thread(*, value: Annotated[str, Depends(token)]) -> None: ...


def loop(value: Annotated[str, Depends(lambda: "")]) -> str:
    return value


loop.__annotations__["value"] = Annotated[str, Depends(loop)]


def wants_a_loop(*, value: Annotated[str, Depends(loop)]) -> None: ...


@looped(
    ("function", "message"),
    [
        (wants_nothing_known, "annotate it with the type of an extension"),
        (wants_a_list, "must be annotated with a class"),
        (wants_a_coroutine_in_a_thread, "is asynchronous"),
        (wants_a_loop, "depends on itself"),
    ],
)
def test_wrong_parameters_are_refused(function: Any, message: str) -> None:
    with pytest.raises(TaskLoadError, match=message):
        task(function)._prepare()


async def test_tasks_stay_callable() -> None:
    @task
    async def double(payload: int, *, factor: int) -> int:
        return payload * factor

    assert await double(2, factor=3) == 6


class Clock:
    """A class in the place of a function."""

    def __init__(self, mailer: Mailer, job: Job) -> None:
        self.of = job.id


async def test_overrides_replace_functions_at_any_depth(database_url: str, jobs: Jobs) -> None:
    got: list[Any] = []
    app = App(extensions=[Mailer()])

    @app.task
    async def welcome(
        *,
        session: Annotated[str, Depends(session)],
        token: Annotated[str, Depends(token)],
        sender: Annotated[str, Depends(sender)],
        clock: Annotated[Clock, Depends(Clock)],
    ) -> None:
        got.append((session, token, sender, clock.of))

    @app.task
    def in_a_thread(*, connection: Annotated[str, Depends(connection)]) -> None:
        got.append(connection)

    async def fake_token(job: Job, sender: Annotated[str, Depends(sender)]) -> AsyncIterator[str]:
        yield f"token of {job.task_identifier} by {sender}"
        got.append("closed")

    app.dependency_overrides[connection] = lambda: "fake connection"
    app.dependency_overrides[sender] = lambda: "overridden below"
    overrides: Any = {token: fake_token, sender: lambda: "nobody"}
    first = await jobs.add("welcome", {})
    await jobs.add("in_a_thread", {})
    await run_once(app=app, connection_string=database_url, concurrency=1, dependency_overrides=overrides)
    assert got == [
        ("session", "token of welcome by nobody", "nobody", first), "closed", "fake connection",
    ]  # fmt: skip
    assert app.extensions.get(Mailer).log == ["begin on fake connection", "commit"]
    got.clear()
    app.dependency_overrides.clear()
    await jobs.add("in_a_thread", {})
    await run_once(app=app, connection_string=database_url)
    assert got == ["connection"]


@looped(
    ("overrides", "message"),
    [
        ({connection: "fake"}, "expected functions, got 'fake'; to give a value, write lambda: value"),
        ({connection: token}, "the task 'plain' cannot run in this worker: token is asynchronous"),
        ({connection: lambda given: given}, "the parameter 'given' must be annotated"),
        ({connection: sender}, "cannot run in this worker: no extension of type Mailer"),
    ],
)
async def test_overrides_are_checked_when_the_worker_starts(
    overrides: Any, message: str, database_url: str
) -> None:
    @task
    def plain(*, connection: Annotated[str, Depends(connection)]) -> None: ...

    with pytest.raises(ConfigError, match=message):
        await run_once(task_list=[plain], connection_string=database_url, dependency_overrides=overrides)
