"""`graphile-worker add` in a project: the options of its tasks apply, and payloads are checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command_line import Call

MAIL = """
from dataclasses import dataclass

from graphile_worker import task

print("this module was imported")


@dataclass
class Mail:
    to: str
    copies: int = 1


@task("mail/send", max_attempts=4, queue_name="mail", priority=7, flags=["slow"], job_key="one")
async def send(payload: Mail) -> None: ...


@task(max_attempts=40)
async def persistent() -> None: ...
"""


@pytest.fixture
def project(place: Path) -> Path:
    (place / "tasks").mkdir()
    (place / "tasks" / "mails.py").write_text(MAIL)
    return place


@pytest.mark.usefixtures("project")
def test_the_options_of_the_task_apply_where_no_flag_is_given(gw: Call) -> None:
    result = gw("add", "mail/send", '{"to": "a"}', "--json").check()
    job = result.json  # what the module prints is not part of it
    assert (job["max_attempts"], job["queue_name"], job["priority"]) == (4, "mail", 7)
    assert (job["flags"], job["key"]) == (["slow"], "one")
    job = gw("add", "mail/send", '{"to": "a"}', "--max-attempts", 9, "--priority", 0, "--json").check().json
    assert (job["max_attempts"], job["queue_name"], job["priority"]) == (9, "mail", 0)
    assert gw("add", "persistent", "--json").check().json["max_attempts"] == 40
    assert gw("add", "elsewhere", "--json").check().json["max_attempts"] == 25


@pytest.mark.usefixtures("project")
def test_the_options_of_the_task_apply_to_a_file_of_jobs(gw: Call) -> None:
    lines = [
        {"task": "mail/send", "payload": {"to": "a"}, "key": "a"},
        {"task": "mail/send", "payload": {"to": "b"}, "key": "b", "max_attempts": 2},
        {"task": "elsewhere"},
    ]
    gw("add", "--from", "-", input="\n".join(map(json.dumps, lines))).check()
    jobs = gw("list", "--json").check().json
    assert sorted((job["max_attempts"], job["priority"]) for job in jobs) == [(2, 7), (4, 7), (25, 0)]


@pytest.mark.usefixtures("project")
def test_a_payload_that_does_not_fit_is_refused(gw: Call) -> None:
    result = gw("add", "mail/send", '{"to": "a", "copies": "two"}')
    assert result.status == 1
    assert result.err.splitlines()[-1] == (
        "graphile-worker: error: payload: does not fit Mail: Expected `int`, got `str` - at `$.copies` "
        "(task 'mail/send')"
    )
    assert "the task 'persistent' takes no payload" in gw("add", "persistent", '{"a": 1}').err
    result = gw("add", "--from", "-", input='{"task": "mail/send", "payload": {"to": 3}}\n')
    assert "standard input:1: payload: does not fit Mail: Expected `str`, got `int` - at `$.to`" in result.err
    assert gw("list", "--json").check().json == []


def test_tasks_that_cannot_be_imported_do_not_prevent_adding(gw: Call, project: Path) -> None:
    (project / "tasks" / "broken.py").write_text("import a_missing_package")
    result = gw("add", "mail/send", '{"to": 3}', "--json").check()
    assert result.json["max_attempts"] == 25
    (line,) = [line for line in result.err.splitlines() if "warning" in line]
    assert line.startswith(
        "graphile-worker: warning: the tasks cannot be loaded, so the payload is not checked and options of "
        "@task do not apply: "
    )
    assert line.endswith(
        "broken.py:1: cannot be imported: ModuleNotFoundError: No module named 'a_missing_package'"
    )


@pytest.mark.usefixtures("project")
def test_a_decorated_task_counts_as_known(gw: Call) -> None:
    gw("add", "mail/send", '{"to": "a"}', "--strict").check()
    assert "did you mean 'persistent'?" in gw("add", "persistant").check().err


def test_without_a_task_directory_there_is_nothing_to_say(gw: Call) -> None:
    assert gw("add", "hello").check().err == ""


def test_a_job_gets_a_time_limit(gw: Call) -> None:
    job = gw("add", "elsewhere", "--timeout", "5m", "--flag", "slow", "--json").check().json
    assert job["flags"] == ["py:timeout=300", "slow"]
    gw("add", "--from", "-", input=json.dumps({"task": "elsewhere", "timeout": 1.5, "key": "k"})).check()
    (job,) = (job for job in gw("list", "--json").check().json if job["key"] == "k")
    assert job["flags"] == ["py:timeout=1.5"]
