"""The plugin in users' test suites, with different asyncio plugins, servers, schemas and tables."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from embedded.asking import query
from graphile_worker.testing.scratch import PREFIX
from support.working import PATIENCE, wait_until
from testing.project import Project

SETTINGS = """
[pytest]
filterwarnings = error
asyncio_default_fixture_loop_scope = function
"""
TASKS = """
from graphile_worker import JobHelpers, task

@task
async def greet(payload: str, helpers: JobHelpers) -> None:
    if payload == "nobody":
        raise LookupError("nobody is there")
"""
TESTS = """
from datetime import timedelta

import pytest

from app import greet

{mark}
async def test_adding_and_running(graphile_worker_utils, added_jobs, run_jobs):
    await graphile_worker_utils.add_job(greet, "Ada")
    assert [job.payload for job in await added_jobs(greet)] == ["Ada"]
    assert len((await run_jobs([greet])).check()) == 1

{mark}
async def test_time(graphile_worker_clock, graphile_worker_utils, run_jobs):
    await graphile_worker_utils.add_job(greet, "Ada", run_at=timedelta(days=1))
    assert not await run_jobs([greet])
    await graphile_worker_clock.advance(timedelta(days=1))
    assert len(await run_jobs([greet])) == 1
"""


@pytest.fixture
def project(tmp_path: Path, server_url: str) -> Project:
    project = Project(tmp_path, server_url)
    project.write("pytest.ini", SETTINGS)
    project.write("app.py", TASKS)
    return project


@pytest.mark.parametrize(
    ("mark", "arguments"),
    [
        ("", ["-o", "asyncio_mode=auto"]),
        ("@pytest.mark.asyncio", ["-o", "asyncio_mode=strict"]),
        ('@pytest.mark.asyncio(loop_scope="session")', ["-o", "asyncio_mode=strict"]),
        ("@pytest.mark.anyio", ["-p", "no:asyncio"]),
    ],
    ids=["asyncio auto", "asyncio strict", "asyncio with one loop", "anyio"],
)
def test_any_plugin_for_asyncio_will_do(project: Project, mark: str, arguments: list[str]) -> None:
    project.write("test_app.py", TESTS.format(mark=mark))
    if "no:asyncio" in arguments:
        project.write("pytest.ini", "[pytest]\nfilterwarnings = error\n")
        project.write(
            "conftest.py",
            "import pytest\n@pytest.fixture\ndef anyio_backend(): return 'asyncio'\n",
        )
    assert "2 passed" in (output := project.run(*arguments)), output


def test_without_a_server_it_starts_the_embedded_one_and_leaves_nothing(project: Project) -> None:
    project.write("test_app.py", TESTS.format(mark="@pytest.mark.asyncio"))
    temporary = project.folder / "temporary"
    temporary.mkdir(mode=0o755)
    output = project.run(embedded=True, TMPDIR=str(temporary))
    assert "2 passed" in output, output
    assert list(temporary.glob(f"{PREFIX}*")) == []


def test_a_run_that_is_killed_leaves_neither_server_nor_folder(project: Project) -> None:
    project.write(
        "test_app.py",
        """
import time

def test_that_waits(graphile_worker_database):
    print("\\nready", flush=True)
    time.sleep(3600)
""",
    )
    temporary = project.folder / "temporary"
    temporary.mkdir(mode=0o755)
    with project.start("-s", TMPDIR=str(temporary)) as run:
        assert run.stdout is not None
        assert any(line.startswith("ready") for line in run.stdout)
        (pid_file,) = temporary.glob(f"{PREFIX}*/cluster/postmaster.pid")
        server = int(pid_file.read_text().split()[0])
        os.kill(server, 0)
        run.kill()
    wait_until(
        lambda: not (list(temporary.glob(f"{PREFIX}*")) or is_running(server)),
        timeout=2 * PATIENCE,
        every=0.02,
    )


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_on_a_server_that_is_given_no_database_is_left(project: Project) -> None:
    """Given by pytest's setting; the other tests use the environment variable."""
    project.write("pytest.ini", f"{SETTINGS}graphile_worker_database_url = {project.server_url}\n")
    project.write(
        "test_app.py",
        "def test_database(graphile_worker_database):\n    assert graphile_worker_database == ''\n",
    )
    output = project.run(embedded=True)
    assert "1 failed" in output
    found = re.search(r"/(gw_test_\d+_\w+_)\d+", output)
    assert found is not None, output
    left = f"select count(*) from pg_database where starts_with(datname, '{found[1]}')"
    assert await query(project.server_url, left) == 0


def test_nothing_is_loaded_or_started_before_a_fixture_is_used(project: Project) -> None:
    project.write(
        "test_app.py",
        """
import sys

def test_modules():
    ours = {name for name in sys.modules if name.startswith("graphile_worker")}
    assert ours == {
        "graphile_worker", "graphile_worker.values",
        "graphile_worker.testing", "graphile_worker.testing.pytest_plugin",
    }
    assert not {"asyncpg", "msgspec", "click", "rich", "json5"} & set(sys.modules)
""",
    )
    output = project.run(GRAPHILE_WORKER_TEST_DATABASE_URL="postgres://nobody@127.0.0.1:1/nothing")
    assert "1 passed" in output, output


def test_the_schema_and_the_tasks_are_those_of_the_projects_configuration(project: Project) -> None:
    project.write("graphile_worker.toml", 'schema = "other"\ntask_directory = "jobs"\n')
    project.write("jobs/greet.py", "async def greet(payload):\n    print('greeted', payload)\n")
    project.write(
        "test_app.py",
        """
async def test_configured(graphile_worker_utils, run_jobs):
    await graphile_worker_utils.add_job("greet", "Ada")
    async with graphile_worker_utils.with_pg_client() as connection:
        assert await connection.fetchval("select count(*) from other.jobs") == 1
    assert len((await run_jobs()).check()) == 1
""",
    )
    assert "1 passed" in (output := project.run("-o", "asyncio_mode=auto")), output


def test_a_project_prepares_its_own_tables_once(project: Project) -> None:
    project.write(
        "conftest.py",
        """
import asyncpg, pytest

FORGOTTEN = []

async def prepare(url):
    connection = await asyncpg.connect(url)
    await connection.execute("create table customer (name text)")
    await connection.execute(
        "create function welcome() returns trigger language plpgsql as $$ begin "
        "perform graphile_worker.add_job('greet', to_json(new.name)); return new; end $$"
    )
    await connection.execute(
        "create trigger welcome after insert on customer for each row execute function welcome()")
    FORGOTTEN.append(connection)  # never closed

@pytest.fixture(scope="session")
def graphile_worker_prepare_database():
    return prepare
""",
    )
    project.write(
        "test_app.py",
        """
import asyncpg, pytest
from app import greet

@pytest.mark.parametrize("_", range(2))
async def test_trigger(_, graphile_worker_database, run_jobs, graphile_worker_clock):
    connection = await asyncpg.connect(graphile_worker_database)
    assert await connection.fetchval("select count(*) from customer") == 0
    await connection.execute("insert into customer values ('Ada')")
    await connection.close()
    assert [job.payload for job in (await run_jobs([greet])).succeeded] == ["Ada"]
""",
    )
    output = project.run("-o", "asyncio_mode=auto", "-W", "ignore::ResourceWarning",
                         "-W", "ignore::pytest.PytestUnraisableExceptionWarning")  # fmt: skip
    assert "2 passed" in output, output


def test_a_project_may_bring_its_own_database_and_names(project: Project, database_url: str) -> None:
    project.write(
        "conftest.py",
        f"""
import pytest

@pytest.fixture
def graphile_worker_database():
    return {database_url!r}

@pytest.fixture
def run_jobs():
    return "ours"
""",
    )
    project.write(
        "test_app.py",
        """
async def test_own(graphile_worker_utils, added_jobs, run_jobs):
    await graphile_worker_utils.add_job("greet", "Ada")
    assert len(await added_jobs("greet")) == 1
    assert run_jobs == "ours"
""",
    )
    output = project.run(
        "-o", "asyncio_mode=auto", GRAPHILE_WORKER_TEST_DATABASE_URL="postgres://nobody@127.0.0.1:1/nothing"
    )
    assert "1 passed" in output, output


def test_without_any_postgresql_both_remedies_are_named(project: Project) -> None:
    project.write(
        "conftest.py",
        """
import pytest
from graphile_worker.database.embedded import cluster
from graphile_worker.errors import EmbeddedPostgresError

@pytest.fixture(autouse=True, scope="session")
def no_postgres():
    def find_binaries(**_):
        raise EmbeddedPostgresError('no PostgreSQL; install "graphile-worker[embedded]"')
    cluster.find_binaries = find_binaries
""",
    )
    project.write("test_app.py", "def test_database(graphile_worker_database): pass\n")
    output = project.run(embedded=True)
    assert "1 error" in output
    assert "graphile-worker[embedded]" in output
    assert "set GRAPHILE_WORKER_TEST_DATABASE_URL to its URL" in output


async def test_a_role_that_may_not_create_databases_gets_a_hint(project: Project) -> None:
    role = f"tester_{os.urandom(4).hex()}"
    admin = await asyncpg.connect(project.server_url)
    try:
        await admin.execute(f"create role {role}")
        try:
            project.write("test_app.py", "def test_database(graphile_worker_database): pass\n")
            output = project.run(
                GRAPHILE_WORKER_TEST_DATABASE_URL=_with_setting(project.server_url, "role", role)
            )
        finally:
            await admin.execute(f"drop role {role}")
    finally:
        await admin.close()
    assert "1 error" in output
    assert "PermissionDeniedError" in output
    assert "allow it with: ALTER ROLE" in output


def _with_setting(url: str, name: str, value: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{name}={value}"


def test_the_plugin_is_announced_to_pytest() -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", "--version", "--version"], capture_output=True, text=True, timeout=60
    )
    assert "graphile_worker/testing/pytest_plugin.py" in listed.stdout + listed.stderr
