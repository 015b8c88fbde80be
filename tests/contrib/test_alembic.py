"""Alembic with our helpers: real projects, run by its own command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from alembic import op

from foreign.places import url_of
from graphile_worker import SyncWorkerUtils, run_once, task
from graphile_worker.contrib.alembic import Operations, exclude_schema, install, uninstall
from graphile_worker.errors import MigrationError
from graphile_worker.values.schema_name import SchemaName
from support.command_line import clean_environment

CONFIGURE = """
import os
from alembic import context
from graphile_worker.contrib.alembic import exclude_schema
from sqlalchemy import Column, Integer, MetaData, Table

metadata = MetaData()
Table("users", metadata, Column("id", Integer, primary_key=True))

def migrate(connection):
    context.configure(
        connection=connection,
        target_metadata=metadata,
        include_schemas=True,
        include_name=exclude_schema() if os.environ.get("EXCLUDE") else None,
    )
    with context.begin_transaction():
        context.run_migrations()
"""
BLOCKING = """
from sqlalchemy import create_engine
if context.is_offline_mode():
    context.configure(url=os.environ["ADDRESS"], literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
else:
    with create_engine(os.environ["ADDRESS"]).connect() as connection:
        migrate(connection)
"""
ASYNC = """
import asyncio
from sqlalchemy.ext.asyncio import create_async_engine

async def main():
    engine = create_async_engine(os.environ["ADDRESS"])
    async with engine.connect() as connection:
        await connection.run_sync(migrate)
    await engine.dispose()

asyncio.run(main())
"""
FIRST = """
from alembic import op
from graphile_worker.contrib.alembic import install, uninstall
revision, down_revision = "one", None

def upgrade():
    install(op)

def downgrade():
    uninstall(op)
"""
SECOND = """
import sqlalchemy
from alembic import op
from graphile_worker.contrib.alembic import install
revision, down_revision = "two", "one"

def upgrade():
    op.create_table("users", sqlalchemy.Column("id", sqlalchemy.Integer, primary_key=True))
    install(op)  # as after an upgrade of the package

def downgrade():
    op.drop_table("users")
"""
FAILING = """
from graphile_worker.contrib.alembic import install
from alembic import op
revision, down_revision = "one", None

def upgrade():
    install(op)
    op.execute("select 1/0")
"""
DRIVERS = {"psycopg": BLOCKING, "psycopg2": BLOCKING, "asyncpg": ASYNC}


class Project:
    """A folder with Alembic's files."""

    def __init__(self, folder: Path, url: str, driver: str, *revisions: str) -> None:
        self.folder = folder
        self.address = url_of(url, driver).render_as_string(hide_password=False)
        versions = folder / "migrations" / "versions"
        versions.mkdir(parents=True)
        (folder / "alembic.ini").write_text("[alembic]\nscript_location = %(here)s/migrations\n")
        (folder / "migrations" / "env.py").write_text(CONFIGURE + DRIVERS[driver])
        template = "from alembic import op\nimport sqlalchemy as sa\nrevision = ${repr(up_revision)}\n"
        template += "down_revision = ${repr(down_revision)}\ndef upgrade():\n    ${upgrades}\n"
        (folder / "migrations" / "script.py.mako").write_text(template)
        for number, text in enumerate(revisions):
            (versions / f"r{number}.py").write_text(text)

    def alembic(self, *arguments: str, exclude: bool = True, status: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "alembic", *arguments],
            cwd=self.folder,
            env=clean_environment(ADDRESS=self.address, EXCLUDE="yes" if exclude else ""),
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    def generated(self, *, exclude: bool) -> str:
        """What autogenerate proposes to do."""
        versions = self.folder / "migrations" / "versions"
        before = set(versions.iterdir())
        self.alembic("revision", "--autogenerate", "-m", "next", exclude=exclude)
        (made,) = {path for path in versions.iterdir() if path.suffix == ".py"} - before
        text = made.read_text()
        made.unlink()
        return text


@task(max_attempts=1)
async def hello(payload: object) -> None: ...


async def works(url: str) -> bool:
    """Whether a worker runs a job."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("select graphile_worker.add_job('hello')")
        await run_once(connection_string=url, task_list=[hello])
        return not await connection.fetchval("select count(*) from graphile_worker._private_jobs")
    finally:
        await connection.close(timeout=60)


def schemas(url: str) -> set[str]:
    with psycopg.connect(url) as session:
        return {row[0] for row in session.execute("select nspname from pg_namespace")}


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_revision_installs_the_schema_and_another_drops_it(
    driver: str, empty_database_url: str, tmp_path: Path
) -> None:
    project = Project(tmp_path, empty_database_url, driver, FIRST, SECOND)
    project.alembic("upgrade", "head")
    assert await works(empty_database_url)
    with psycopg.connect(empty_database_url, autocommit=True) as session:
        SyncWorkerUtils.bound(session).add_job("left", job_key="k")
        refused = project.alembic("downgrade", "base", status=1)
        assert 'MigrationError: the schema "graphile_worker" has jobs' in refused
        assert "pass drop_jobs=True" in refused
        assert "graphile_worker" in schemas(empty_database_url)
        SyncWorkerUtils.bound(session).remove_job("k")
    project.alembic("downgrade", "base")
    assert "graphile_worker" not in schemas(empty_database_url)
    project.alembic("upgrade", "head")
    assert await works(empty_database_url)


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_a_revision_that_fails_installs_nothing(driver: str, empty_database_url: str, tmp_path: Path) -> None:
    project = Project(tmp_path, empty_database_url, driver, FAILING)
    assert "division by zero" in project.alembic("upgrade", "head", status=1)
    assert "graphile_worker" not in schemas(empty_database_url)


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_autogenerate_leaves_the_schema_alone(driver: str, empty_database_url: str, tmp_path: Path) -> None:
    project = Project(tmp_path, empty_database_url, driver, FIRST, SECOND)
    project.alembic("upgrade", "head")
    assert "drop_table('_private_jobs'" in project.generated(exclude=False), "what would happen without"
    assert "op." not in project.generated(exclude=True)


async def test_offline_mode_writes_sql_that_does_the_same(empty_database_url: str, tmp_path: Path) -> None:
    project = Project(tmp_path, empty_database_url, "psycopg", FIRST, SECOND)
    script = project.alembic("upgrade", "head", "--sql")
    assert "graphile_worker" not in schemas(empty_database_url)
    connection = await asyncpg.connect(empty_database_url)
    try:
        await connection.execute(script)
        assert await works(empty_database_url)
        await connection.execute("drop table graphile_worker._private_py_progress")
        await connection.execute("delete from alembic_version; drop table users")
        await connection.execute(script.partition("CREATE TABLE alembic_version")[2].partition(";")[2])
        assert await connection.fetchval("select to_regclass('graphile_worker._private_py_progress')::text")
        with psycopg.connect(empty_database_url) as session:
            assert not SyncWorkerUtils.bound(session).migrate().changed
        await connection.execute("select graphile_worker.add_job('hello')")
        down = project.alembic("downgrade", "two:base", "--sql")
        with pytest.raises(asyncpg.PostgresError, match="there are jobs"):
            await connection.execute(down)
        await connection.execute("rollback; delete from graphile_worker._private_jobs")
        await connection.execute(down)
    finally:
        await connection.close(timeout=60)
    assert "graphile_worker" not in schemas(empty_database_url)


async def test_the_script_refuses_an_older_revision(database_url: str, tmp_path: Path) -> None:
    script = Project(tmp_path, database_url, "psycopg", FIRST).alembic("upgrade", "head", "--sql")
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute("delete from graphile_worker.migrations where id > 18")
        with pytest.raises(asyncpg.RaiseError, match="installed at revision 18"):
            await connection.execute(script)
    finally:
        await connection.close(timeout=60)


def test_another_schema_and_another_hook_are_respected() -> None:
    asked: list[Any] = []

    def mine(name: Any, kind: Any, parents: Any) -> bool:
        asked.append(name)
        return bool(name != "theirs")

    include = exclude_schema("jobs", mine)
    assert not include("jobs", "schema", {})
    assert not include("tasks", "table", {"schema_name": "jobs"})
    assert asked == []
    assert include("public", "schema", {})
    assert not include("theirs", "table", {"schema_name": None})
    assert asked == ["public", "theirs"]
    assert exclude_schema()("jobs", "schema", {})


def test_jobs_may_be_dropped_on_request(database_url: str) -> None:
    class Op:
        def __init__(self, connection: Any) -> None:
            self._connection = connection

        def get_bind(self) -> Any:
            return self._connection

        def get_context(self) -> Any:
            class Context:
                as_sql = False

            return Context()

    with psycopg.connect(database_url) as session:
        SyncWorkerUtils.bound(session).add_job("left")
        uninstall(Op(session), drop_jobs=True)
        odd = 'odd "%s $1 name'
        report = install(Op(session), schema=odd)
        assert report is not None
        assert report.schema.name == odd
        uninstall(Op(session), schema=odd)
        uninstall(Op(session), schema="never_installed")
    assert not {"graphile_worker", odd} & schemas(database_url)


def test_a_schema_name_that_would_end_a_script_early_is_refused() -> None:
    from graphile_worker.database.migrations.script import repeatable_sql

    with pytest.raises(MigrationError, match=r"must not contain \$graphile_worker_"):
        repeatable_sql(SchemaName("x$graphile_worker_baseline$"))


def test_the_module_op_has_the_type_that_is_asked_for() -> None:
    """Checked by mypy."""
    operations: Operations = op
    assert operations is op
