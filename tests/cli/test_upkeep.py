"""Migrating, cleaning up, unlocking and showing the configuration from the command line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import asyncpg
import pytest

from support.command_line import COMMAND, Call, clean_environment


def test_the_schema_is_installed_and_then_found_up_to_date(call: Call, empty_database_url: str) -> None:
    url = ("-c", empty_database_url)
    assert call("migrate", *url).check().out == 'Schema "graphile_worker" installed (revision 20).\n'
    assert call("migrate", *url).check().out == 'Schema "graphile_worker" is up to date (revision 20).\n'
    found = call("migrate", *url, "--json").check().json
    assert (found["schema"], found["found_revision"], found["revision"]) == ("graphile_worker", 20, 20)
    assert found["applied_revisions"] == []


def test_the_flag_schema_only_does_the_same_and_takes_any_schema_name(
    call: Call, empty_database_url: str
) -> None:
    result = call("-c", empty_database_url, "-s", 'My "jobs"', "--schema-only").check()
    assert result.out == 'Schema "My ""jobs""" installed (revision 20).\n'
    assert call("add", "t", "-c", empty_database_url, "-s", 'My "jobs"').check()


async def test_the_printed_statements_install_the_schema(spawn: Call, empty_database_url: str) -> None:
    script = spawn("migrate", "--sql", "-s", "elsewhere").check().out  # no database is given
    assert spawn("migrate", "--sql", "-s", "elsewhere", "--json").json == {
        "schema": "elsewhere",
        "sql": script,
    }
    connection = await asyncpg.connect(empty_database_url)
    notices: list[str] = []
    connection.add_log_listener(lambda _, message: notices.append(message.message))
    try:
        await connection.execute(script)
        assert notices == []
        assert await connection.fetchval("select (elsewhere.add_job('t')).id") == 1
    finally:
        await connection.close()
    result = spawn("migrate", "-c", empty_database_url, "-s", "elsewhere", "--json").check()
    assert result.json["applied_revisions"] == result.json["applied_extensions"] == []


@pytest.fixture
def leftovers(gw: Call) -> None:
    """A failed job, an unused task name and an unused queue."""
    gw("add", "failing", "--key", "bad").check()
    gw("fail", "--key", "bad").check()
    gw("add", "gone", "--queue", "empty").check()
    gw("complete", 2).check()


@pytest.mark.usefixtures("leftovers")
def test_cleanup_deletes_names_and_queues_that_nothing_uses(gw: Call) -> None:
    assert gw("cleanup").check().out == "Deleted 1 unused task name, 1 unused queue.\n"
    assert gw("cleanup").check().out == "Nothing to delete.\n"
    assert len(gw("list", "--json").json) == 1


@pytest.mark.usefixtures("leftovers")
def test_cleanup_does_what_is_named_with_commas_or_without(gw: Call) -> None:
    result = gw("cleanup", "DELETE_PERMAFAILED_JOBS, GC_TASK_IDENTIFIERS", "GC_JOB_QUEUES", "--json").check()
    assert result.json == {"permafailed_jobs": 1, "task_identifiers": 2, "job_queues": 1}
    assert gw("cleanup", "NOPE").status == 2


@pytest.mark.usefixtures("leftovers")
def test_the_flag_cleanup_is_repeatable_and_takes_commas(gw: Call) -> None:
    result = gw("--cleanup", "GC_JOB_QUEUES", "--cleanup", " DELETE_PERMAFAILED_JOBS ,").check()
    assert result.out == "Deleted 1 permanently failed job, 1 unused queue.\n"


@pytest.mark.usefixtures("leftovers")
@pytest.mark.parametrize("arguments", [["cleanup"], ["--cleanup", "GC_TASK_IDENTIFIERS"]])
def test_names_of_local_tasks_are_kept(gw: Call, place: Path, arguments: list[str]) -> None:
    (place / "tasks").mkdir()
    (place / "tasks" / "gone.py").write_text("def gone(): pass\n")
    result = gw(*arguments).check()
    assert "task name" not in result.out
    assert gw("cleanup", "--tasks", "nowhere").status == 1


def test_the_configuration_is_shown_with_its_sources_and_without_passwords(
    call: Call, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "graphile_worker.toml").write_text("concurrency = 4\n[local_queue]\nsize = 7\n")
    monkeypatch.setenv("DATABASE_URL", "postgres://me:s3cret@host/db?sslpassword=s3cret")
    monkeypatch.setenv("GRAPHILE_WORKER_LOG_LEVEL", "warning")
    found = call("-s", "jobs", "config", "--json").check().json
    assert found["schema"] == {"value": "jobs", "source": "command line"}
    assert found["concurrency"] == {"value": 4, "source": str(place / "graphile_worker.toml")}
    assert found["local_queue.size"]["value"] == 7
    assert found["log_level"]["source"] == "environment variable GRAPHILE_WORKER_LOG_LEVEL"
    assert found["connection_string"]["value"] == "postgres://me:***@host/db?sslpassword=***"
    assert found["grace"]["source"] == "default"
    shown = call("config").check().out
    assert "s3cret" not in shown
    assert any(line.split()[:2] == ["concurrency", "4"] for line in shown.splitlines())


def test_the_command_line_wins_and_a_command_may_stand_behind_the_connection(
    call: Call, gw: Call, database_url: str
) -> None:
    assert gw("-s", "missing", "list").status == 1
    assert gw("-s", "missing", "list", "-s", "graphile_worker").check().out == "No jobs.\n"
    assert call("-c", database_url, "list", "--json").check().json == []


def test_a_mistake_in_a_configuration_file_names_the_file(call: Call, place: Path) -> None:
    (place / "other.toml").write_text("concurency = 4\n")
    result = call("-C", "other.toml", "--once")
    assert result.status == 1
    assert result.err == (
        f"graphile-worker: error: {place}/other.toml: unknown option 'concurency'; "
        "did you mean 'concurrency'?\n"
    )


def test_output_into_a_closed_pipe_ends_without_a_traceback(database_url: str, place: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "migrate", "--sql"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(DATABASE_URL=database_url),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) in (0, 1)
    assert b"Traceback" not in err
    assert b"BrokenPipe" not in err
