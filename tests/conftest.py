"""One way to get a server, a database and a connection.

TEST_DATABASE_URL        use this server; the role must be allowed to create databases
TEST_POSTGRES_VERSION    else start an embedded one of this version (18, 16)
TEST_POSTGRES_BIN        else start one with the programs in this folder
TEST_IN_MEMORY           0: keep temporary files, and so databases, on the disk (see tests/support/memory.py)
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import pytest

import support.bytecode  # first, see there
import support.skipped
from graphile_worker.database.embedded import EmbeddedPostgres
from graphile_worker.testing.results import EventRecorder
from graphile_worker.testing.scratch import SETTINGS, scratch_folder
from support.limits import TimeLimits
from support.partitions import make_partitions
from support.process_state import restored_process
from support.run_guard import RunGuard
from support.scheduling import Durations, LongestFirst
from support.server import DatabaseServer, SharedServer, chosen_programs
from support.working import Jobs, Workers, workers_of


def _hear_signals() -> None:
    """Started in the background, the suite may ignore signals, and what it starts would inherit that."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, usual)


def _forget_the_terminals_size() -> None:
    """pytest-xdist sets it for its processes; a program in a test's terminal must ask that one."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)


_hear_signals()
_forget_the_terminals_size()


RUN_GUARD = pytest.StashKey[RunGuard]()


def pytest_addoption(parser: pytest.Parser) -> None:
    support.skipped.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    support.skipped.install(config)
    config.stash[RUN_GUARD] = RunGuard()
    config.pluginmanager.register(TimeLimits(config))
    config.pluginmanager.register(support.bytecode.CompiledFiles(config))
    if config.getoption("numprocesses", None) or "PYTEST_XDIST_WORKER" in os.environ:
        config.pluginmanager.register(LongestFirst(config))
    if config.getoption("numprocesses", None):
        config.pluginmanager.register(Durations())


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[RUN_GUARD].close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Captured output may hold half a surrogate pair, which pytest-xdist cannot send."""
    report = yield
    report.sections[:] = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report


def _server_choice() -> str:
    if os.environ.get("TEST_DATABASE_URL"):
        return "the server of TEST_DATABASE_URL"
    folder = os.environ.get("TEST_POSTGRES_BIN")
    if folder:
        return f"embedded, programs from {folder}"
    return f"embedded, version {os.environ.get('TEST_POSTGRES_VERSION') or 'newest found'}"


def pytest_report_header() -> str:
    return f"PostgreSQL: {_server_choice()}"


@pytest.fixture(autouse=True)
def _process_as_it_was() -> Iterator[None]:
    """What a test sets up for the whole process, such as logging, must not reach the next one."""
    with restored_process():
        yield


SERVER_SETTINGS = {**SETTINGS, "max_wal_size": "256MB", "min_wal_size": "64MB"}  # the folder may be in memory


@contextmanager
def _running_server() -> Iterator[str]:
    if url := os.environ.get("TEST_DATABASE_URL"):
        yield url
        return
    with (
        scratch_folder() as folder,
        EmbeddedPostgres(folder, settings=SERVER_SETTINGS, **chosen_programs()) as embedded,
    ):
        yield embedded.url()


SERVER_VERSION = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """The running PostgreSQL. Tests that stop or restart a server start one of their own."""
    with _running_server() as url:
        running = SharedServer(url)
        request.config.stash[SERVER_VERSION] = running.version
        try:
            yield running
        finally:
            running.close()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if version := config.stash.get(SERVER_VERSION, None):
        terminalreporter.write_line(f"Tested on PostgreSQL {version} ({_server_choice()})")


@pytest.fixture(scope="session")
def graphile_worker_server(server: DatabaseServer) -> DatabaseServer:
    """The fixtures that the package has for its users make their databases on the same server."""
    return server


@pytest.fixture(scope="session")
def template_database(server: DatabaseServer) -> str:
    """The name of a database with the schema installed; it is cloned, never connected to.

    It has the partitions that a worker with default settings makes when it first starts: making them takes
    longer than the rest of most tests. Tests of the history have a template without them.
    """
    return server.create_template(prepare=make_partitions)


@pytest.fixture
def create_database(server: DatabaseServer) -> Iterator[Callable[..., str]]:
    """Makes further databases and returns their URLs; `create_database(template=...)` clones one."""
    names: list[str] = []

    def create(*, template: str | None = None) -> str:
        names.append(server.create_database(template=template))
        return server.url(names[-1])

    yield create
    for name in names:
        server.drop_database(name)


@pytest.fixture
def server_url(server: DatabaseServer) -> str:
    """The URL of the server's maintenance database, for tests that manage databases or roles."""
    return server.admin_url


@pytest.fixture
def database_url(create_database: Callable[..., str], template_database: str) -> str:
    """The URL of a fresh database in which the schema "graphile_worker" is installed."""
    return create_database(template=template_database)


@pytest.fixture
def empty_database_url(create_database: Callable[..., str]) -> str:
    """The URL of a fresh database with nothing in it."""
    return create_database()


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[Any]:
    """An asyncpg connection to the test's own database."""
    connection = await asyncpg.connect(database_url)
    try:
        yield connection
    finally:
        await connection.close(timeout=60)


@pytest.fixture
def jobs(connection: Any) -> Jobs:
    return Jobs(connection)


@pytest.fixture
async def workers(database_url: str) -> AsyncIterator[Workers]:
    """Workers inside the test's own process."""
    async for workers in workers_of(database_url):
        yield workers


@pytest.fixture
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that were not told of a pause or a cancelled job look for it several times a second."""
    monkeypatch.setattr("graphile_worker.worker.control.watch.LOOK_INTERVAL", 0.2)


@pytest.fixture
async def recorder() -> EventRecorder:
    return EventRecorder()
