"""The lifespan of an app: when it is entered and left, what it yields, and how it fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple

import pytest

from graphile_worker import App, JobHelpers, run, run_once
from graphile_worker.errors import ConfigError, ExtensionMissingError, LifespanError
from graphile_worker.runner import lifespan as lifespan_module
from graphile_worker.runner.lifespan import entered
from support.cases import looped
from support.trap import FAULTS
from support.working import PATIENCE, Gate, Jobs, until

Manager = Callable[[], AbstractAsyncContextManager[Any]]


class Mailer:
    """Application state."""


class Post(Mailer):
    """A kind of it."""


class PlainManager:
    """A context manager for `with`."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class State(NamedTuple):
    """One object that happens to be a tuple."""

    mailer: Mailer
    number: int


class Settings:
    """One object that can be iterated, like a pydantic model."""

    def __iter__(self) -> Any:
        return iter([("key", "value")])


def yielding(value: Any, said: list[str] | None = None) -> Manager:
    """A lifespan that yields this value."""
    record = said if said is not None else []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[Any]:
        record.append("entered")
        yield value
        record.append("left")

    return lifespan


async def unreachable_server() -> None:
    raise ConnectionError("no mail server")


def options(database_url: str, **more: Any) -> dict[str, Any]:
    return {"connection_string": database_url, "handle_signals": False, "poll_interval": 600.0, **more}


# -- what is yielded ---------------------------------------------------------------------------------------


@looped(
    ("value", "kinds"),
    [
        (None, []),
        (Mailer(), [Mailer]),
        ([Mailer(), 3], [Mailer, int]),
        ((Mailer(), 3), [Mailer, int]),
        ({Mailer: Post()}, [Mailer]),
        (State(Mailer(), 3), [State]),
        (Settings(), [Settings]),
        ("text", [str]),
    ],
)
async def test_what_is_yielded_joins_the_extensions(value: Any, kinds: list[type]) -> None:
    async with entered(App(lifespan=yielding(value), extensions=[2.5])) as app:
        assert list(app.extensions) == [float, *kinds]
        assert app.lifespan is None


async def test_an_app_that_is_yielded_is_merged_and_its_own_lifespan_entered() -> None:
    said: list[str] = []
    inner = App(tasks={"inner": print}, lifespan=yielding([Mailer()], said), crontab="0 4 * * * inner")
    outer = App(tasks={"outer": print}, lifespan=yielding([inner, 3]))
    async with entered(outer) as app:
        assert list(app.tasks) == ["outer", "inner"]
        assert set(app.extensions) == {int, Mailer}
        assert [item.identifier for item in app.cron_items] == ["inner"]
        assert said == ["entered"]
    assert said == ["entered", "left"]


async def test_a_lifespan_that_takes_the_app_gets_it() -> None:
    seen: list[App] = []

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        seen.append(app)
        yield

    app = App(lifespan=lifespan)
    async with entered(app):
        assert seen == [app]


@looped("value", [{"mailer": Mailer()}, [Mailer(), Mailer()], Mailer, [App(concurrency=3)]])
async def test_what_cannot_be_an_extension_is_refused(value: Any) -> None:
    said: list[str] = []
    with pytest.raises(LifespanError) as info:
        async with entered(App(lifespan=yielding(value if value is not Mailer else [Mailer], said))):
            raise AssertionError
    assert isinstance(info.value.__cause__, ConfigError)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: 3, "returned 3; expected a function with @asynccontextmanager"),
        (lambda: PlainManager(), "returned a context manager without `async`"),
        (lambda: asyncio.sleep(0), "returned <coroutine object sleep"),
    ],
)
async def test_a_function_that_returns_something_else_is_refused(function: Any, message: str) -> None:
    with pytest.raises(LifespanError, match=message):
        async with entered(App(lifespan=function)):
            raise AssertionError


# -- in a worker -------------------------------------------------------------------------------------------


async def test_tasks_get_what_the_lifespan_has_opened(database_url: str, jobs: Jobs) -> None:
    mailer, said = Mailer(), list[str]()
    found: list[object] = []
    app = App(lifespan=yielding(mailer, said))

    @app.task
    async def send(helpers: JobHelpers) -> None:
        found.append(helpers.extension(Mailer))

    await jobs.add("send")
    async with run(app=app, **options(database_url)) as runner:
        await jobs.until_gone()
        assert said == ["entered"]
    assert found == [mailer]
    assert said == ["entered", "left"]
    assert runner.is_stopped


async def test_it_is_left_after_the_last_job_has_ended(database_url: str, jobs: Jobs) -> None:
    said: list[str] = []
    gate = Gate()
    app = App(tasks={"wait": gate}, lifespan=yielding(None, said))
    runner = await run(app=app, **options(database_url))
    await jobs.add("wait")
    await gate.until_inside(1)
    stopping = asyncio.create_task(runner.stop())
    await until(lambda: runner.is_stopping)
    assert said == ["entered"]
    gate.open()
    async with asyncio.timeout(PATIENCE):
        await stopping
    assert said == ["entered", "left"]


async def test_the_database_is_still_open_when_it_is_left(database_url: str, jobs: Jobs) -> None:
    """Left before connections close: a job added by the worker's client at that time is there."""
    runners: list[Any] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield
        await runners[0].add_job("hello")

    async with run(app=App(tasks={"hello": print}, lifespan=lifespan), **options(database_url)) as runner:
        runners.append(runner)
    assert await jobs.count() == 1


async def test_the_schema_is_installed_when_it_is_entered(empty_database_url: str) -> None:
    from graphile_worker import add_job_adhoc

    ran: list[int] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        await add_job_adhoc("hello", connection_string=empty_database_url)
        yield

    app = App(tasks={"hello": lambda payload: ran.append(1)}, lifespan=lifespan)
    await run_once(app=app, **options(empty_database_url))
    assert ran == [1]


async def test_tasks_may_come_from_the_lifespan_alone(database_url: str, jobs: Jobs) -> None:
    ran: list[Any] = []
    await jobs.add("hello", {"n": 1})
    await run_once(app=yielding(App(tasks={"hello": ran.append})), **options(database_url))
    assert ran == [{"n": 1}]


async def test_run_once_enters_and_leaves_even_if_nothing_waits(database_url: str) -> None:
    said: list[str] = []
    await run_once(app=App(tasks={"hello": print}, lifespan=yielding(None, said)), **options(database_url))
    assert said == ["entered", "left"]


async def test_an_app_runs_again(database_url: str) -> None:
    said: list[str] = []
    app = App(tasks={"hello": print}, lifespan=yielding(None, said))
    for _ in range(2):
        await run_once(app=app, **options(database_url))
    assert said == ["entered", "left"] * 2


async def test_objects_of_the_call_replace_those_of_the_app(database_url: str, jobs: Jobs) -> None:
    fake = Post()
    found: list[Any] = []
    app = App(lifespan=yielding([Mailer(), 3]), extensions=[2.5, 1])

    @app.task
    async def look(helpers: JobHelpers) -> None:
        found.extend(helpers.extension(kind) for kind in (Mailer, int, float))

    await jobs.add("look")
    await run_once(app=app, extensions={Mailer: fake}, **options(database_url))
    assert found == [fake, 3, 2.5]


async def test_a_missing_extension_names_both_ways_to_bring_it(database_url: str, jobs: Jobs) -> None:
    app = App(extensions=[3])

    @app.task
    async def look(helpers: JobHelpers) -> None:
        with pytest.raises(
            ExtensionMissingError, match=r"\(given: int\); yield one from the lifespan of your"
        ):
            helpers.extension(Mailer)

    job_id = await jobs.add("look", max_attempts=1)
    await run_once(app=app, **options(database_url))
    assert job_id not in [row["id"] for row in await jobs.all()]


# -- failures ----------------------------------------------------------------------------------------------


async def test_an_error_at_the_start_keeps_the_worker_from_starting(
    database_url: str, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        await unreachable_server()
        yield

    await jobs.add("hello")
    app = App(tasks={"hello": print}, lifespan=lifespan)
    expected = (
        "the lifespan of .*test_lifespan failed at its start: ConnectionError: no mail server .at .*, line"
    )
    for call in (run, run_once):
        with pytest.raises(LifespanError, match=expected) as info:
            await call(app=app, **options(database_url))
        assert isinstance(info.value.__cause__, ConnectionError)
    assert await jobs.count() == 1
    assert any(record.exc_info for record in caplog.records if record.name == "graphile_worker.app")


async def test_an_error_at_the_end_is_logged_and_raised(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield
        raise OSError("cannot close")

    app = App(tasks={"hello": print}, lifespan=lifespan)
    runner = await run(app=app, **options(database_url))
    with pytest.raises(LifespanError, match="failed at its end: OSError: cannot close"):
        await runner.stop()
    with pytest.raises(LifespanError):
        await runner.wait()
    assert runner.is_stopped
    [record] = [record for record in caplog.records if record.name == "graphile_worker.app"]
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    with pytest.raises(LifespanError, match="failed at its end"):
        await run_once(app=app, **options(database_url))


async def test_it_is_left_if_the_worker_cannot_start(database_url: str) -> None:
    said: list[str] = []

    class Broken:
        def install(self, hooks: Any) -> None:
            raise ValueError("broken plugin")

    app = App(tasks={"hello": print}, lifespan=yielding(None, said), plugins=[Broken()])
    with pytest.raises(ValueError, match="broken plugin"):
        await run(app=app, **options(database_url))
    assert said == ["entered", "left"]


async def test_it_is_not_entered_if_a_task_cannot_be_loaded(database_url: str) -> None:
    said: list[str] = []
    app = App(lifespan=yielding(None, said))
    namespace: dict[str, Any] = {"app": app, "__name__": "shop_worker"}
    exec("from __future__ import annotations\n@app.task\ndef ship(payload: Missing): ...", namespace)
    with pytest.raises(ConfigError, match="Missing"):
        await run(app=app, **options(database_url))
    assert said == []


async def test_a_cancelled_start_leaves_it(database_url: str) -> None:
    said: list[str] = []
    waits = asyncio.Event()

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        try:
            waits.set()
            await asyncio.Event().wait()
            yield
        finally:
            said.append("cleaned up")

    starting = asyncio.ensure_future(
        asyncio.wait_for(run(app=App(tasks={"a": print}, lifespan=lifespan), **options(database_url)), None)
    )
    async with asyncio.timeout(PATIENCE):
        await waits.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    assert said == ["cleaned up"]


async def test_a_task_group_in_it_may_stay_open_and_stops_the_worker_when_it_fails(
    database_url: str, jobs: Jobs
) -> None:
    """Task groups must be left by the task that entered them; a worker is started and stopped by others."""
    fails = asyncio.Event()
    said: list[str] = []
    gate = Gate()

    async def background() -> None:
        await fails.wait()
        raise ValueError("the connection is gone")

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(background())
            try:
                yield
            finally:
                said.append("left")
            watching.cancel()

    app = App(tasks={"wait": gate}, lifespan=lifespan)
    async with asyncio.timeout(PATIENCE):
        async with run(app=app, **options(database_url)):
            pass
        assert said == ["left"]
        runner = await run(app=app, **options(database_url))
        await jobs.add("wait")
        await gate.until_inside(1)
        fails.set()
        await until(lambda: runner.is_stopping)
        assert said == ["left"]  # the job still runs, and may use what was opened
        gate.open()
        with pytest.raises(LifespanError, match="unhandled errors in a TaskGroup"):
            await runner.wait()
    assert said == ["left", "left"]
    assert await jobs.count() == 0


async def test_one_that_does_not_end_is_left_behind(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifespan_module, "LEAVE_WITHIN", 0.05)

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield
        await asyncio.Event().wait()

    runner = await run(app=App(tasks={"hello": print}, lifespan=lifespan), **options(database_url))
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(LifespanError, match=r"did not end within 0\.05 seconds"):
            await runner.stop()


def test_when_the_program_ends_the_jobs_end_before_the_lifespan(database_url: str) -> None:
    """`asyncio.run` cancels every task at its end, that of the lifespan too."""
    said: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            said.append("job ended")

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        try:
            yield
        finally:
            said.append("left")

    async def program() -> None:
        runner = await run(app=App(tasks={"wait": wait}, lifespan=lifespan), **options(database_url))
        started = asyncio.Event()
        runner.events.on("job:start", lambda event: started.set())
        await runner.add_job("wait")
        async with asyncio.timeout(PATIENCE):
            await started.wait()

    asyncio.run(program())
    assert said == ["job ended", "left"]


@looped("fault", FAULTS)
async def test_whatever_a_lifespan_raises_the_worker_does_not_start(
    database_url: str, fault: type[BaseException]
) -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        await asyncio.sleep(0)
        if fault:
            raise fault("as asked")
        yield

    with pytest.raises(LifespanError, match="as asked"):
        await run(app=App(lifespan=lifespan), **options(database_url))


@looped("fault", [fault for fault in FAULTS if fault is not GeneratorExit])
async def test_whatever_a_lifespan_raises_at_its_end_the_worker_ends_with_an_error(
    database_url: str, jobs: Jobs, fault: type[BaseException]
) -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield
        raise fault("as asked")

    await jobs.add("print")
    with pytest.raises(LifespanError):
        await run_once(app=App(tasks={"print": lambda: None}, lifespan=lifespan), **options(database_url))
    assert await jobs.count() == 0
