"""Fixtures for tests of programs that use the queue; pytest finds them by itself.

    graphile_worker_database    the URL of a database of the test's own, with the schema installed
    graphile_worker_utils       a client for it
    run_jobs, added_jobs        run what waits there, look at what waits there
    graphile_worker_clock       a clock to move; the test's client and worker go by it

The server is the embedded one, started when a test first needs it, or the one named by the environment
variable GRAPHILE_WORKER_TEST_DATABASE_URL or by the setting `graphile_worker_database_url` of pytest. No
fixture is a coroutine, so every plugin for asyncio will do. Modules are imported where they are used, because
pytest imports this one in every run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..client import WorkerUtils
    from ..options import WorkerOptions
    from .database import DatabaseServer
    from .fake_clock import FakeClock
    from .jobs import AddedJobs, RunJobs

URL_VARIABLE = "GRAPHILE_WORKER_TEST_DATABASE_URL"
URL_SETTING = "graphile_worker_database_url"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        URL_SETTING,
        "PostgreSQL server for the tests' databases; its role may create databases "
        f"(default: {URL_VARIABLE}, else an embedded server)",
        default="",
    )


# -- once per run ------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def graphile_worker_options(pytestconfig: pytest.Config) -> WorkerOptions:
    """The options of the project as its configuration says; override it to test with others."""
    from ..config import resolve

    return resolve({}, cwd=pytestconfig.rootpath)[0]


@pytest.fixture(scope="session")
def graphile_worker_server(pytestconfig: pytest.Config) -> Iterator[DatabaseServer]:
    """The server on which databases are made."""
    from ..errors import EmbeddedPostgresError
    from .database import DatabaseServer
    from .scratch import scratch_server

    with ExitStack() as resources:
        url = os.environ.get(URL_VARIABLE) or pytestconfig.getini(URL_SETTING)
        if not url:
            try:
                url = resources.enter_context(scratch_server())
            except EmbeddedPostgresError as error:
                error.add_note(f"Or let the tests use a server that runs: set {URL_VARIABLE} to its URL")
                raise
        server = DatabaseServer(url)
        resources.callback(server.drop_all)
        yield server


@pytest.fixture(scope="session")
def graphile_worker_prepare_database() -> Callable[[str], Any] | None:
    """Override it to return a function that makes your own tables, given a URL; it is called once."""
    return None


@pytest.fixture(scope="session")
def graphile_worker_template(
    graphile_worker_server: DatabaseServer,
    graphile_worker_options: WorkerOptions,
    graphile_worker_prepare_database: Callable[[str], Any] | None,
) -> str:
    """The name of the database that each test gets a copy of."""
    return graphile_worker_server.create_template(
        graphile_worker_options.schema_name, graphile_worker_prepare_database
    )


# -- once per test -----------------------------------------------------------------------------------------


@pytest.fixture
def graphile_worker_database(
    graphile_worker_server: DatabaseServer, graphile_worker_template: str
) -> Iterator[str]:
    """The URL of a fresh database; override it to test with a database of another kind."""
    name = graphile_worker_server.create_database(template=graphile_worker_template)
    yield graphile_worker_server.url(name)
    graphile_worker_server.drop_database(name)


@pytest.fixture
def graphile_worker_clock(graphile_worker_database: str) -> FakeClock:
    """A clock that stands still, at first at the server's time, until the test moves it."""
    from ..sql import load
    from .database import DatabaseServer
    from .fake_clock import FakeClock

    statement = load("testing/server_time")
    start = DatabaseServer.run(graphile_worker_database, lambda session: session.fetchval(statement))
    return FakeClock(start)


@pytest.fixture
def graphile_worker_utils(
    graphile_worker_database: str, graphile_worker_options: WorkerOptions, request: pytest.FixtureRequest
) -> WorkerUtils:
    """A client of the test's database; it opens a connection when it needs one, on any event loop."""
    from ..client import WorkerUtils
    from .connections import ConnectionPerUse

    clock = _clock_of(request)
    return WorkerUtils(
        ConnectionPerUse(graphile_worker_database),
        schema=graphile_worker_options.schema_name,
        use_local_time=clock is not None,
        clock=clock,
    )


@pytest.fixture
def run_jobs(
    graphile_worker_database: str, graphile_worker_options: WorkerOptions, request: pytest.FixtureRequest
) -> RunJobs:
    """`await run_jobs([send_email])` runs what is ready and tells what came of it."""
    from .jobs import RunJobs

    return RunJobs(graphile_worker_database, options=graphile_worker_options, clock=_clock_of(request))


@pytest.fixture
def added_jobs(graphile_worker_utils: WorkerUtils) -> AddedJobs:
    """`await added_jobs(send_email)` lists the jobs that wait."""
    from .jobs import AddedJobs

    return AddedJobs(graphile_worker_utils)


def _clock_of(request: pytest.FixtureRequest) -> FakeClock | None:
    """The clock, if the test or one of its fixtures uses it; else the server's time holds."""
    if "graphile_worker_clock" not in request.fixturenames:
        return None
    clock: FakeClock = request.getfixturevalue("graphile_worker_clock")
    return clock
