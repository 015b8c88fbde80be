"""Workers that start before the database does: what is waited for, for how long, and what is not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from graphile_worker import run
from graphile_worker.database.connections import wait
from graphile_worker.database.connections.dsn import Dsn
from graphile_worker.database.connections.errors import translate_connect_errors
from graphile_worker.database.connections.wait import when_ready
from graphile_worker.errors import ConnectionFailedError
from support.proxy import Proxy, proxy_to
from support.worker_process import Start, starting
from support.working import PATIENCE

AWAY = ConnectionFailedError("nobody answers", is_away=True)
WRONG_PASSWORD = ConnectionFailedError("refused the login")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(wait, "LONGEST_PAUSE", 0.002)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path) as start:
        yield start


class Waiting(logging.Handler):
    """Tells when a worker says that it waits."""

    def __init__(self) -> None:
        super().__init__()
        self.said = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "waiting up to" in record.getMessage():
            self.said.set()


def answers(*errors: ConnectionFailedError) -> tuple[Callable[[], Awaitable[str]], list[int]]:
    """A way to connect that fails with each of these first, and a list with an item for each attempt."""
    attempts: list[int] = []

    async def connect() -> str:
        attempts.append(len(attempts))
        if len(attempts) <= len(errors):
            raise errors[len(attempts) - 1]
        return "connected"

    return connect, attempts


async def test_a_server_that_is_away_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "graphile_worker")
    connect, attempts = answers(AWAY, AWAY, AWAY)
    assert await when_ready(connect, 60) == "connected"
    assert len(attempts) == 4
    begun, ended = [record.getMessage() for record in caplog.records]
    assert begun == "waiting up to 1 min for the database: nobody answers"
    assert ended.startswith("the database accepts connections after ")


async def test_it_says_again_that_it_waits(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait, "LOG_EVERY", 0.0)
    connect, _ = answers(AWAY, AWAY, AWAY)
    await when_ready(connect, 60)
    again = [record.getMessage() for record in caplog.records if "still waiting" in record.getMessage()]
    assert len(again) == 2
    assert again[0].endswith(": nobody answers")


async def test_nothing_else_is_waited_for() -> None:
    connect, attempts = answers(WRONG_PASSWORD)
    with pytest.raises(ConnectionFailedError, match="refused the login"):
        await when_ready(connect, 60)
    assert len(attempts) == 1
    connect, attempts = answers(AWAY, WRONG_PASSWORD)
    with pytest.raises(ConnectionFailedError, match="refused the login"):
        await when_ready(connect, 60)
    assert len(attempts) == 2, "nor after it came up"


async def test_without_time_the_first_error_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    connect, attempts = answers(AWAY)
    with pytest.raises(ConnectionFailedError, match="nobody answers"):
        await when_ready(connect, 0)
    assert (len(attempts), caplog.records) == (1, [])


async def test_when_the_time_is_over_the_last_error_is_raised() -> None:
    last = ConnectionFailedError("still starting", is_away=True)
    connect, attempts = answers(AWAY, *[last] * 10_000)
    with pytest.raises(ConnectionFailedError, match="still starting"):
        await when_ready(connect, 0.05)
    assert len(attempts) > 1


async def test_an_attempt_that_hangs_does_not_outlast_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "LAST_ATTEMPT", 0.01)
    attempts: list[int] = []

    async def connect() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise AWAY
        await asyncio.Event().wait()

    async with asyncio.timeout(PATIENCE):
        with pytest.raises(ConnectionFailedError, match="nobody answers"):
            await when_ready(connect, 0.05)


@pytest.mark.parametrize(
    ("error", "is_away"),
    [
        (ConnectionRefusedError(111, "Connection refused"), True),
        (FileNotFoundError(2, "No such file"), True),
        (TimeoutError(), True),
        (ConnectionError('PostgreSQL server at "db:5432" rejected SSL upgrade'), False),
    ],
)
def test_which_errors_may_pass(error: OSError, is_away: bool) -> None:
    with (
        pytest.raises(ConnectionFailedError) as found,
        translate_connect_errors(Dsn.parse("postgres://db/x")),
    ):
        raise error
    assert found.value.is_away is is_away


async def test_a_worker_starts_when_the_database_does(database_url: str, tmp_path: Path) -> None:
    log, logger = Waiting(), logging.getLogger("graphile_worker")
    logger.addHandler(log)
    url = Proxy(database_url).url(tmp_path)

    async def worker() -> None:
        async with run(connection_string=url, task_list={"idle": print}, wait_for_database=60):
            pass

    try:
        async with asyncio.timeout(60):
            running = asyncio.ensure_future(worker())
            said = asyncio.ensure_future(log.said.wait())
            await asyncio.wait((running, said), return_when=asyncio.FIRST_COMPLETED)
            assert said.done(), running
            async with proxy_to(database_url, tmp_path):
                await running
    finally:
        logger.removeHandler(log)


async def test_a_program_does_not_wait_by_itself(database_url: str, tmp_path: Path) -> None:
    with pytest.raises(ConnectionFailedError, match="cannot be reached"):
        async with run(connection_string=Proxy(database_url).url(tmp_path), task_list={"idle": print}):
            pytest.fail("it started")


async def test_the_command_waits_by_itself(database_url: str, tmp_path: Path, start: Start) -> None:
    worker = start(url=Proxy(database_url).url(tmp_path))
    await asyncio.to_thread(worker.wait_for, "waiting up to 5 s for the database")
    async with proxy_to(database_url, tmp_path):
        await asyncio.to_thread(worker.ready)
        worker.process.terminate()
        await asyncio.to_thread(worker.ended)


def test_the_flag_and_the_variable(database_url: str, tmp_path: Path, start: Start) -> None:
    url = Proxy(database_url).url(tmp_path)
    worker = start("--wait-for-database", "200s", url=url).wait_for(
        "waiting up to 3 min 20 s for the database"
    )
    worker.close()
    worker = start("--once", url=url, GRAPHILE_WORKER_WAIT_FOR_DATABASE="0.1").wait_for(
        "waiting up to 100 ms"
    )
    assert worker.ended() == 1
    assert "cannot be reached" in worker.output
    at_once = start("--once", url=url, GRAPHILE_WORKER_WAIT_FOR_DATABASE="0")
    assert at_once.ended() == 1
    assert "waiting" not in at_once.output
