"""`graphile-worker crontab check` and `crontab next`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.command_line import Call

CRONTAB = """\
# m h dom mon dow
0 4 * * * report ?id=nightly
30 2 * * * report ?id=berlin&tz=Europe/Berlin
0 0 29 2 * leap
"""


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose clock is nine hours ahead of UTC."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def write_tasks(place: Path, *names: str) -> None:
    (place / "tasks").mkdir()
    for name in names:
        (place / "tasks" / f"{name}.py").write_text(f"async def {name}(payload):\n    pass\n")


def test_check_finds_nothing_wrong(call: Call, place: Path) -> None:
    (place / "crontab").write_text(CRONTAB)
    write_tasks(place, "report", "leap")
    result = call("crontab", "check").check()
    assert result.out == "crontab: 3 recurring jobs, no problems.\n"
    assert result.err == ""


def test_check_shows_all_faults_at_once_unknown_tasks_included(call: Call, place: Path) -> None:
    (place / "my-crontab").write_text("60 * * * * report\n* * * * * reprot\n* * * * * leap ?max=0 {a:}\n")
    write_tasks(place, "report", "leap")
    result = call("crontab", "check", "my-crontab")
    assert result.status == 1
    assert "my-crontab:1:1: minute: 60 is too large; allowed: 0 to 59" in result.out
    assert "my-crontab:2:11: unknown task 'reprot'; did you mean 'report'?" in result.out
    assert "my-crontab:3:17: the option 'max': must be from 1 to 32767, got 0" in result.out
    assert "my-crontab:3:23: the payload is not JSON5" in result.out
    assert result.out.endswith("my-crontab: 4 problems.\n")


def test_check_says_so_if_the_tasks_cannot_be_loaded(call: Call, place: Path) -> None:
    (place / "crontab").write_text(CRONTAB)
    result = call("crontab", "check").check()
    assert "Tasks and payloads were not checked: " in result.err
    assert call("crontab", "check", "--tasks", "nowhere").status == 1


def test_check_speaks_json_and_reads_standard_input(call: Call, place: Path) -> None:
    result = call("crontab", "check", "-", "--json", input="* * * * * a\n* * * * 9 b\n")
    assert result.status == 1
    assert result.json == {
        "file": "standard input",
        "items": 1,
        "tasks_checked": False,
        "problems": [
            {
                "line": 2,
                "column": 9,
                "message": "weekday: 9 is too large; allowed: 0 to 7 or names such as SUN",
                "text": "* * * * 9 b",
            }
        ],
        "warnings": [],
        "jobs": [{"line": 1, "identifier": "a", "task": "a", "options": {}, "from_task": []}],
    }


@pytest.mark.parametrize("command", ["check", "next"])
def test_a_file_that_cannot_be_read_is_an_error(call: Call, place: Path, command: str) -> None:
    result = call("crontab", command)
    assert result.status == 1
    assert "crontab: cannot be read: No such file or directory" in result.err
    (place / "crontab").write_bytes(b"\xff")
    assert "not UTF-8" in call("crontab", command).err


@pytest.mark.usefixtures("tokyo")
def test_next_shows_the_next_runs_in_utc_and_local_time(call: Call, place: Path) -> None:
    (place / "crontab").write_text(CRONTAB)
    result = call("crontab", "next", "--count", 4, "--from", "2026-03-28T12:00").check()
    heading, *lines = result.out.splitlines()
    assert " ".join(heading.split()) == "UTC LOCAL IN ITS ZONE TASK IDENTIFIER"
    assert len(lines) == 4
    assert "Sun 2026-03-29 01:00  2026-03-29 10:00 JST  2026-03-29 03:00 CEST  report" in result.out
    assert "Sun 2026-03-29 04:00  2026-03-29 13:00 JST" in result.out


@pytest.mark.usefixtures("tokyo")
def test_next_speaks_json_and_sees_far_ahead(call: Call, place: Path) -> None:
    (place / "crontab").write_text("0 0 29 2 * leap\n0 0 30 2 * never\n")
    result = call("crontab", "next", "--count", 2, "--from", "2096-03-01", "--json").check()
    assert result.json == [
        {
            "at": "2104-02-29T00:00:00Z",
            "local": "2104-02-29T09:00:00+09:00",
            "tz": None,
            "task": "leap",
            "identifier": "leap",
            "pattern": "0 0 29 2 *",
            "options": {},
            "from_task": [],
        }
    ]


def test_next_begins_now_and_shows_ten(call: Call, place: Path) -> None:
    (place / "crontab").write_text("* * * * * a")
    assert len(call("crontab", "next", "--json").check().json) == 10
    assert len(call("crontab", "next", "--from", "2h", "--json").check().json) == 10


def test_next_of_nothing_says_so_and_a_wrong_time_is_wrong_usage(call: Call, place: Path) -> None:
    (place / "crontab").write_text("0 0 30 2 * never")
    assert "No runs" in call("crontab", "next").check().out
    assert call("crontab", "next", "--from", "someday").status == 2
    assert call("crontab", "next", "--count", "0").status == 2


def test_next_refuses_a_crontab_with_faults(call: Call, place: Path) -> None:
    (place / "crontab").write_text("* * * * *\n")
    result = call("crontab", "next")
    assert result.status == 1
    assert "crontab:1:1: could not process the line" in result.err


CHARGE = """
from dataclasses import dataclass

from graphile_worker import task


@dataclass
class Charge:
    amount: int


@task(max_attempts=4, queue_name="money", flags=["slow"])
async def charge(payload: Charge) -> None: ...
"""


def write_charge(place: Path) -> None:
    (place / "tasks").mkdir()
    (place / "tasks" / "charge.py").write_text(CHARGE)


def test_check_shows_the_options_of_the_jobs_and_warns_of_overrides(call: Call, place: Path) -> None:
    write_charge(place)
    (place / "crontab").write_text(
        "0 4 * * * charge {amount: 1}\n0 5 * * * charge ?id=eager&max=3&priority=-1&jobKey=k {amount: 2}\n"
    )
    result = call("crontab", "check").check()
    assert result.out.splitlines() == [
        "crontab:1: charge: max_attempts 4, queue_name money, flags slow (from the task)",
        "crontab:2: eager: max_attempts 3, priority -1, job_key k; queue_name money, flags slow "
        "(from the task)",
        "crontab:2: warning: eager: max_attempts 3 overrides the task's 4",
        "crontab: 2 recurring jobs, no problems, 1 warning.",
    ]
    assert result.err == ""
    seen = call("crontab", "check", "--json").check().json
    assert seen["warnings"] == [
        {"line": 2, "identifier": "eager", "message": "max_attempts 3 overrides the task's 4"}
    ]
    assert seen["jobs"][0] == {
        "line": 1,
        "identifier": "charge",
        "task": "charge",
        "options": {"max_attempts": 4, "queue_name": "money", "flags": ["slow"]},
        "from_task": ["max_attempts", "queue_name", "flags"],
    }


def test_check_finds_a_payload_that_does_not_fit_its_task(call: Call, place: Path) -> None:
    write_charge(place)
    (place / "crontab").write_text("0 4 * * * charge\n0 5 * * * charge ?id=b {amount: 'x'}\n")
    result = call("crontab", "check")
    assert result.status == 1
    assert result.out.splitlines() == [
        "crontab:1:11: payload: does not fit Charge: Object missing required field `amount` (task 'charge')",
        "crontab:2:11: payload: does not fit Charge: Expected `int`, got `str` - at `$.amount` "
        "(task 'charge')",
        "crontab: 2 problems.",
    ]


def test_next_shows_the_options_of_the_jobs(call: Call, place: Path) -> None:
    write_charge(place)
    (place / "crontab").write_text("0 4 * * * charge {amount: 1}\n0 5 * * * other\n")
    result = call("crontab", "next", "-n", 2).check()
    assert result.out.splitlines()[0].split()[-1] == "OPTIONS"
    assert "charge  charge      max_attempts 4, queue_name money, flags slow (from the task)" in result.out
    assert result.err == ""
    (place / "tasks" / "broken.py").write_text("1 / 0")
    result = call("crontab", "next", "-n", 2, "--json").check()
    assert result.json[0]["options"] == {}
    assert result.err.startswith("Options of tasks are not shown: ")
    assert call("crontab", "next", "--tasks", "tasks").status == 1
