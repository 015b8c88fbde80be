"""-C applies to every command, and a crontab that is named must exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphile_worker.database.connections.dsn import Dsn
from support.cases import looped
from support.command_line import Call
from support.server import DatabaseServer


@looped(
    "arguments",
    [
        ["list"],
        ["stats"],
        ["queues"],
        ["workers"],
        ["migrate"],
        ["add", "hello"],
        ["cleanup", "GC_JOB_QUEUES"],
    ],
)
def test_a_broken_file_that_was_not_chosen_does_no_harm(
    call: Call, place: Path, database_url: str, arguments: list[str]
) -> None:
    (place / "graphile_worker.toml").write_text("this is not TOML")
    (place / "other.toml").write_text(f'connection_string = "{database_url}"\n')
    call("-C", "other.toml", *arguments).check()
    call(*arguments, "-C", "other.toml").check()


def test_a_chosen_file_is_not_mixed_with_the_default_one(call: Call, place: Path, database_url: str) -> None:
    (place / "graphile_worker.toml").write_text('schema = "nowhere"\n')
    (place / "other.toml").write_text(f'connection_string = "{database_url}"\n')
    assert call("-C", "other.toml", "list", "--json").check().json == []


@pytest.fixture
def tasks(place: Path) -> None:
    (place / "tasks").mkdir()
    (place / "tasks" / "hello.py").write_text("def hello(payload):\n    pass\n")


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize("name", ["crontab", "deploy/crontab"])
def test_a_crontab_that_was_named_must_exist(spawn: Call, place: Path, database_url: str, name: str) -> None:
    for arguments in (["--crontab", name, "--once"], ["--crontab", name]):
        result = spawn(*arguments, DATABASE_URL=database_url)
        assert result.status == 1
        assert f"{place / name}: the crontab does not exist" in result.err


@pytest.mark.usefixtures("tasks")
def test_the_default_crontab_may_be_missing(spawn: Call, database_url: str) -> None:
    assert "crontab" not in spawn("--once", DATABASE_URL=database_url).check().out
    loud = spawn("--once", "--log-level", "debug", DATABASE_URL=database_url)
    assert "no crontab at crontab" in loud.check().out


@pytest.mark.usefixtures("tasks")
def test_a_crontab_beside_tasks_elsewhere_is_not_read_and_the_log_says_so(
    spawn: Call, place: Path, database_url: str
) -> None:
    (place / "deploy").mkdir()
    (place / "tasks").rename(place / "deploy" / "tasks")
    (place / "deploy" / "crontab").write_text("0 4 * * * hello\n")
    run = ("--once", "--tasks", "deploy/tasks")
    said = spawn(*run, DATABASE_URL=database_url).check().err
    assert "deploy/crontab is not read: use --crontab for that" in said
    said = spawn(*run, "--crontab", "deploy/crontab", DATABASE_URL=database_url).check().err
    assert "is not read" not in said


def test_a_wrong_session_attribute_is_refused_with_those_that_exist(call: Call) -> None:
    result = call("list", "-c", "postgres://localhost:1/db?target_session_attrs=leader")
    assert result.status == 1
    known = "any, primary, standby, prefer-standby, read-write, read-only"
    assert f"target_session_attrs must be one of {known}; got 'leader'" in result.err
    assert "<" not in result.err


def test_a_bare_name_is_a_database(call: Call, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dsn = Dsn.parse(database_url)
    assert dsn.database is not None
    ((host, port),) = dsn.addresses
    for name, value in (("PGHOST", host), ("PGPORT", str(port)), ("PGUSER", "postgres")):
        monkeypatch.setenv(name, value)
    assert call("-c", dsn.database, "list", "--json").check().json == []


def test_a_payload_that_is_not_valid_text_does_not_stop_the_list(gw: Call, database_url: str) -> None:
    add = r"""select graphile_worker.add_job('hello', '{"to":"a\ud83d"}'::json)"""
    DatabaseServer.run(database_url, lambda connection: connection.execute(add))
    assert r"a\ud83d" in gw("list", "--payload").check().out
    (job,) = gw("list", "--json").check().json
    assert job["payload"] == r'{"to":"a\ud83d"}'
    assert r"a\ud83d" in gw("show", job["id"]).check().out
