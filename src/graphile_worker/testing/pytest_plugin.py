"""pytest fixtures for programs that use the queue.

    graphile_worker_database    the URL of a fresh database with the schema installed
    graphile_worker_utils       a client for it
    run_jobs, added_jobs        run the jobs in it, list the jobs in it
    graphile_worker_clock       a clock to move; the client and the worker of the test follow it
    graphile_worker_app         the configured app, which `run_jobs()` runs

The server is embedded and starts with the first test that needs it, or is named by the environment variable
GRAPHILE_WORKER_TEST_DATABASE_URL or pytest's setting `graphile_worker_database_url`. No fixture is a
coroutine, so any asyncio plugin works. Fixtures import what they need, because pytest imports this module in
every run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..client import WorkerUtils
    from ..runner.application import App
    from ..values.options import WorkerOptions
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


# -- per session ------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def graphile_worker_app(pytestconfig: pytest.Config) -> App | None:
    """The configured app of the project; override it to test with another."""
    from ..config import resolve_settings

    name = resolve_settings({}, cwd=pytestconfig.rootpath).process.app
    if not name:
        return None
    from ..runner.application import load_app

    return load_app(name)


@pytest.fixture(scope="session")
def graphile_worker_options(pytestconfig: pytest.Config, graphile_worker_app: App | None) -> WorkerOptions:
    """The configured options of the project; override it to test with others."""
    from ..config import resolve_settings

    settings = resolve_settings({}, cwd=pytestconfig.rootpath)
    return settings.over({} if graphile_worker_app is None else graphile_worker_app.options, "app").worker


@pytest.fixture(scope="session")
def graphile_worker_server(pytestconfig: pytest.Config) -> Iterator[DatabaseServer]:
    """The server of the test databases."""
    from ..errors import EmbeddedPostgresError
    from .database import DatabaseServer
    from .scratch import scratch_server

    with ExitStack() as resources:
        url = os.environ.get(URL_VARIABLE) or pytestconfig.getini(URL_SETTING)
        if not url:
            try:
                url = resources.enter_context(scratch_server())
            except EmbeddedPostgresError as error:
                error.add_note(f"To use a running server instead, set {URL_VARIABLE} to its URL")
                raise
        server = DatabaseServer(url)
        resources.callback(server.drop_all)
        yield server


@pytest.fixture(scope="session")
def graphile_worker_prepare_database() -> Callable[[str], Any] | None:
    """Override it to return a function that creates your own tables, given a URL; called once."""
    return None


@pytest.fixture(scope="session")
def graphile_worker_template(
    graphile_worker_server: DatabaseServer,
    graphile_worker_options: WorkerOptions,
    graphile_worker_prepare_database: Callable[[str], Any] | None,
) -> str:
    """The name of the database that is copied for each test."""
    return graphile_worker_server.create_template(
        graphile_worker_options.schema_name, graphile_worker_prepare_database
    )


# -- per test ------------------------------------------------------------------------------------------------


@pytest.fixture
def graphile_worker_database(
    graphile_worker_server: DatabaseServer, graphile_worker_template: str
) -> Iterator[str]:
    """The URL of a fresh database; override it to use another database."""
    name = graphile_worker_server.create_database(template=graphile_worker_template)
    yield graphile_worker_server.url(name)
    graphile_worker_server.drop_database(name)


@pytest.fixture
def graphile_worker_clock(graphile_worker_database: str) -> FakeClock:
    """A clock that starts at the server's time and stands still until the test moves it."""
    from ..database.sql import load
    from .database import DatabaseServer
    from .fake_clock import FakeClock

    statement = load("testing/server_time")
    start = DatabaseServer.run(graphile_worker_database, lambda session: session.fetchval(statement))
    return FakeClock(start)


@pytest.fixture
def graphile_worker_utils(
    graphile_worker_database: str, graphile_worker_options: WorkerOptions, request: pytest.FixtureRequest
) -> WorkerUtils:
    """A client for the test's database; opens a connection per call, on the current event loop."""
    from ..client import WorkerUtils
    from ..client.connections import ClientConnections
    from .database import ConnectionPerUse

    clock = _clock_of(request)
    connections = ClientConnections(
        ConnectionPerUse(graphile_worker_database),
        schema=graphile_worker_options.schema_name,
        use_local_time=clock is not None,
        clock=clock,
    )
    # No worker is running; `run_jobs` finds unknown names.
    return WorkerUtils(connections, checks_names=False)


@pytest.fixture
def run_jobs(
    graphile_worker_database: str,
    graphile_worker_options: WorkerOptions,
    graphile_worker_app: App | None,
    request: pytest.FixtureRequest,
) -> RunJobs:
    """`await run_jobs([send_email])` runs the jobs that are ready and returns how they ended."""
    from .jobs import RunJobs

    return RunJobs(
        graphile_worker_database,
        options=graphile_worker_options,
        clock=_clock_of(request),
        app=graphile_worker_app,
    )


@pytest.fixture
def added_jobs(graphile_worker_utils: WorkerUtils) -> AddedJobs:
    """`await added_jobs(send_email)` lists the jobs in the queue."""
    from .jobs import AddedJobs

    return AddedJobs(graphile_worker_utils)


def _clock_of(request: pytest.FixtureRequest) -> FakeClock | None:
    """The clock, if the test or one of its fixtures uses it."""
    if "graphile_worker_clock" not in request.fixturenames:
        return None
    clock: FakeClock = request.getfixturevalue("graphile_worker_clock")
    return clock
