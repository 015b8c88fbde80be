"""`graphile-worker init`: its files work, and existing files are unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphile_worker import parse_crontab
from support.command_line import Call


def test_the_first_files_are_made_and_said(call: Call, place: Path) -> None:
    result = call("init").check()
    assert (
        "created  tasks/hello.py\ncreated  crontab\ncreated  .gitignore (.graphile-worker/)\n" in result.out
    )
    assert "graphile-worker dev" in result.out
    assert (place / "tasks" / "hello.py").is_file()
    assert (place / ".gitignore").read_text() == ".graphile-worker/\n"
    assert call("crontab", "check", "--json").check().json["items"] == 0


def test_the_examples_in_the_crontab_can_be_used(call: Call, place: Path) -> None:
    call("init").check()
    lines = (place / "crontab").read_text().splitlines()
    examples = [line.removeprefix("# ") for line in lines if " * * hello" in line]
    assert [item.task_identifier for item in parse_crontab("\n".join(examples))] == ["hello", "hello"]


def test_the_example_runs(gw: Call, spawn: Call, database_url: str) -> None:
    gw("init").check()
    gw("add", "hello", '{"name": "Ada"}').check()
    gw("add", "hello").check()
    result = spawn("--once", DATABASE_URL=database_url).check()
    assert ": Hello, Ada!" in result.out
    assert ": Hello, world!" in result.out


def test_a_second_time_nothing_is_made(call: Call, place: Path) -> None:
    first = call("init", "--json").check().json
    assert first == {"created": ["tasks/hello.py", "crontab", ".gitignore (.graphile-worker/)"], "kept": []}
    before = {path: path.read_text() for path in place.rglob("*") if path.is_file()}
    assert call("init", "--json").check().json == {"created": [], "kept": ["tasks", "crontab", ".gitignore"]}
    assert {path: path.read_text() for path in place.rglob("*") if path.is_file()} == before


def test_what_is_there_is_left_alone(call: Call, place: Path) -> None:
    (place / "tasks").mkdir()
    (place / "tasks" / "mine.py").write_text("def mine(): pass\n")
    (place / "crontab").write_text("* * * * * mine\n")
    (place / ".gitignore").write_text("*.pyc")
    assert call("init", "--json").check().json["kept"] == ["tasks", "crontab"]
    assert sorted(path.name for path in (place / "tasks").glob("*.py")) == ["mine.py"]
    assert (place / "crontab").read_text() == "* * * * * mine\n"
    assert (place / ".gitignore").read_text() == "*.pyc\n.graphile-worker/\n"


def test_an_empty_task_directory_gets_the_example(call: Call, place: Path) -> None:
    (place / "tasks").mkdir()
    assert "tasks/hello.py" in call("init", "--json").check().json["created"]


@pytest.mark.parametrize("line", [".graphile-worker", "/.graphile-worker/"])
def test_the_data_directory_is_ignored_once_however_it_is_written(call: Call, place: Path, line: str) -> None:
    (place / ".gitignore").write_text(f"{line}\n")
    call("init").check()
    assert (place / ".gitignore").read_text() == f"{line}\n"


def test_the_configured_places_are_used(call: Call, place: Path) -> None:
    (place / "graphile_worker.toml").write_text('task_directory = "app/jobs"\ncrontab_file = "app/cron"\n')
    call("init").check()
    assert (place / "app" / "jobs" / "hello.py").is_file()
    assert (place / "app" / "cron").is_file()


def test_tasks_in_a_module_get_no_example(call: Call, place: Path) -> None:
    (place / "graphile_worker.toml").write_text('task_directory = "app.tasks:exported"\n')
    call("init").check()
    assert not (place / "app").exists()
    assert not (place / "tasks").exists()


def test_a_directory_that_cannot_be_written_is_named(call: Call, place: Path) -> None:
    (place / "tasks.d").write_text("")
    (place / "graphile_worker.toml").write_text('task_directory = "tasks.d/inner"\n')
    result = call("init")
    assert result.status == 1
    assert "tasks.d" in result.err
    assert "cannot be written: Not a directory" in result.err
