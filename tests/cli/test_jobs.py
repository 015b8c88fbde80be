"""Adding, listing, showing and managing jobs from the command line."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from graphile_worker.values.text import parse_when
from support.cases import looped
from support.command_line import COMMAND, Call, clean_environment

JOB_KEYS = [
    "id", "task_identifier", "state", "queue_name", "payload", "priority", "run_at", "attempts",
    "max_attempts", "last_error", "created_at", "updated_at", "key", "locked_at", "locked_by", "revision",
    "failed_at", "attempts_made", "flags",
]  # fmt: skip


def add(gw: Call, *arguments: object, input: str = "") -> dict[str, Any]:
    job: dict[str, Any] = gw("add", *arguments, "--json", input=input).check().json
    return job


def lock(server: Any, url: str, job_id: int) -> None:
    statement = (
        "update graphile_worker._private_jobs set locked_at = now(), locked_by = 'pool-1', "
        f"attempts = attempts + 1 where id = {job_id}"
    )
    server.run(url, lambda connection: connection.execute(statement))


# -- add ---------------------------------------------------------------------------------------------------


def test_a_job_gets_everything_the_flags_say(gw: Call) -> None:
    job = add(
        gw, "send_email", '{"to": "a@example.com"}', "--queue", "mail",
        "--run-at", "2030-01-31T12:00:00+02:00", "--max-attempts", 3, "--key", "welcome:1",
        "--key-mode", "replace", "--priority", -5,
        "--flag", "slow", "--flag", "big",
    )  # fmt: skip
    assert job["task_identifier"] == "send_email"
    assert job["payload"] == {"to": "a@example.com"}
    assert job["run_at"] == "2030-01-31T10:00:00Z"
    assert (job["max_attempts"], job["key"], job["priority"]) == (3, "welcome:1", -5)
    assert (job["queue_name"], job["flags"]) == ("mail", ["big", "slow"])


def test_an_added_job_is_described_in_one_line(gw: Call) -> None:
    result = gw("add", "hello", "--queue", "q", "--key", "k", "--run-at", "2030-01-31T12:00:00Z").check()
    assert result.out == "Added job 1: hello, queue q, key k, to run at 2030-01-31 12:00:00Z\n"


def test_the_payload_comes_from_the_argument_a_file_or_standard_input(gw: Call, place: Path) -> None:
    (place / "payload.json").write_text('["from a file", "ü"]', encoding="utf-8")
    assert add(gw, "t")["payload"] == {}
    assert add(gw, "t", "0")["payload"] == 0
    assert add(gw, "t", "null")["payload"] == {}
    assert add(gw, "t", "--payload-file", "payload.json")["payload"] == ["from a file", "ü"]
    assert add(gw, "t", "-", input='{"a": [1]}')["payload"] == {"a": [1]}
    assert add(gw, "t", "--payload-file", "-", input='"text"')["payload"] == "text"


@looped(
    ("arguments", "message"),
    [
        (["add"], "Name the TASK of the job"),
        (["add", "t", "{a: 1}"], "Invalid value for PAYLOAD: not valid JSON: Expecting property name"),
        (["add", "t", "NaN"], "NaN is not a JSON number"),
        (["add", "t", "-"], "Invalid value for standard input: not valid JSON"),
        (["add", "t", "[" * 100_000], "the JSON is nested too deeply"),
        (["add", "t", "1", "--payload-file", "x"], "not both"),
        (["add", "t", "--payload-file", "no.json"], "no.json cannot be read: No such file or directory"),
        (["add", "t", "--run-at", "tomorrow"], "'tomorrow' is neither a time such as"),
        (["add", "t", "--run-at", "2030-01-31T12:00:00"], "has no time zone; add Z"),
        (["add", "t", "--key-mode", "merge"], "'merge' is not one of"),
        (["add", "t", "--priority", "high"], "'high' is not a valid integer"),
        (["add", "t", "--from", "jobs.jsonl"], "--from cannot be combined with a task"),
    ],
)
def test_wrong_values_of_add_are_explained_and_end_with_status_2(
    call: Call, arguments: list[str], message: str
) -> None:
    result = call(*arguments)
    assert result.status == 2
    assert message in result.err


@looped(
    ("arguments", "message"),
    [
        (["", "{}"], "task_identifier: must not be empty"),
        (["x" * 129], "task_identifier: has 129 characters; at most 128 are allowed"),
        (["t", "--queue", ""], "queue_name: must not be empty"),
        (["t", "--key", "k" * 513], "job_key: has 513 characters"),
        (["t", "--max-attempts", "0"], "max_attempts: must be from 1 to 32767, got 0"),
        (["t", "--priority", "40000"], "priority: must be from -32768 to 32767, got 40000"),
        (["t", '"\\u0000"'], "payload: contains a NUL character"),
        (["t", "1e999"], "payload: inf at $ is not a JSON number"),
    ],
)
def test_values_out_of_bounds_are_refused_by_name(gw: Call, arguments: list[str], message: str) -> None:
    result = gw("add", *arguments)
    assert result.status == 1
    assert result.err.startswith(f"graphile-worker: error: {message}")
    assert gw("list", "--json").json == []


def test_many_jobs_are_added_from_a_file_of_json_lines(gw: Call, place: Path) -> None:
    lines = [
        {
            "task": "a",
            "payload": {"n": 1},
            "queue": "q",
            "key": "k",
            "priority": 3,
            "flags": ["f"],
            "max_attempts": 2,
        },
        {"identifier": "b", "queue_name": "r", "job_key": "l", "run_at": "2030-01-01T00:00:00Z"},
        {"task_identifier": "c", "run_at": "1h", "payload": [1]},
    ]
    (place / "jobs.jsonl").write_text("\n\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    assert gw("add", "--from", "jobs.jsonl").check().out == "Added 3 jobs.\n"
    first, second, third = gw("list", "--json").json
    assert (first["task_identifier"], first["payload"], first["queue_name"], first["key"]) == (
        "a",
        {"n": 1},
        "q",
        "k",
    )
    assert (first["priority"], first["flags"], first["max_attempts"]) == (3, ["f"], 2)
    assert (second["task_identifier"], second["run_at"]) == ("b", "2030-01-01T00:00:00Z")
    assert (third["state"], third["payload"]) == ("scheduled", [1])


def test_thousands_of_lines_come_from_standard_input(gw: Call) -> None:
    text = "".join(f'{{"task": "t", "payload": {number}}}\n' for number in range(12_001))
    assert gw("add", "--from", "-", "--json", input=text).check().json == {"added": 12_001}
    assert gw("stats", "--json").json["jobs"]["ready"] == 12_001


@looped(
    ("line", "message"),
    [
        ('{"task": "t", "runat": 1}', "unknown member 'runat'; known: task"),
        ('{"payload": 1}', '"task" is missing'),
        ("[1]", "expected an object"),
        ("{", "truncated"),
        ('{"task": "t", "queue": "a", "queue_name": "b"}', "'queue_name' is set twice"),
        ('{"task": "t", "run_at": "soon"}', "'soon' is neither a time"),
        ('{"task": "t", "max_attempts": 0}', "max_attempts: must be from 1"),
        ('{"task": "t", "key_mode": "merge"}', "job_key_mode: expected one of"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_added(gw: Call, line: str, message: str) -> None:
    text = '{"task": "good"}\n' * 6000 + line + "\n"
    result = gw("add", "--from", "-", input=text)
    assert result.status == 1
    assert result.err.startswith("graphile-worker: error: standard input:6001: ")
    assert message in result.err
    assert gw("list", "--json").json == []


def test_a_file_that_cannot_be_read_is_an_error(gw: Call, place: Path) -> None:
    assert "no.jsonl cannot be read" in gw("add", "--from", "no.jsonl").err
    (place / "bad.jsonl").write_bytes(b'{"task": "\xff"}\n')
    assert "bad.jsonl:1: not UTF-8 text" in gw("add", "--from", "bad.jsonl").err


@looped(
    ("text", "expected"),
    [
        ("now", timedelta()),
        ("5m", timedelta(minutes=5)),
        ("+2h", timedelta(hours=2)),
        ("1d12h", timedelta(days=1, hours=12)),
        ("1W", timedelta(weeks=1)),
        ("90s", timedelta(seconds=90)),
        ("2030-01-31T12:00:00Z", datetime(2030, 1, 31, 12, tzinfo=UTC)),
        ("2030-01-31T12:00+02:00", datetime(2030, 1, 31, 10, tzinfo=UTC)),
    ],
)
def test_times_can_be_written_in_several_ways(text: str, expected: datetime | timedelta) -> None:
    assert parse_when(text) == expected


@looped("text", ["", "5", "5 m", "-5m", "m", "9" * 20 + "w", "2030-13-01T00:00:00Z"])
def test_other_texts_are_no_times(text: str) -> None:
    with pytest.raises(ValueError, match=r"neither a time|too long"):
        parse_when(text)


# -- list and show -----------------------------------------------------------------------------------------


@pytest.fixture
def some_jobs(gw: Call, server: Any, database_url: str) -> dict[str, int]:
    """One job in each state."""
    ids = {
        "ready": add(gw, "mail", '{"n": 1}', "--queue", "q")["id"],
        "scheduled": add(gw, "mail", "--run-at", "1h", "--key", "later")["id"],
        "running": add(gw, "report", "--key", "busy")["id"],
        "failed": add(gw, "report")["id"],
    }
    lock(server, database_url, ids["running"])
    gw("fail", ids["failed"], "--reason", "gave up").check()
    return ids


def test_jobs_are_listed_by_state_task_queue_key_and_holder(gw: Call, some_jobs: dict[str, int]) -> None:
    def listed(*arguments: object) -> list[int]:
        return [job["id"] for job in gw("list", "--json", *arguments).check().json]

    assert listed() == list(some_jobs.values())
    for state, job_id in some_jobs.items():
        assert listed("--state", state) == [job_id]
    assert listed("--task", "mail") == [some_jobs["ready"], some_jobs["scheduled"]]
    assert listed("--queue", "q") == [some_jobs["ready"]]
    assert listed("--key", "later") == [some_jobs["scheduled"]]
    assert listed("--locked-by", "pool-1") == [some_jobs["running"]]
    assert listed("--order", "newest", "--limit", 2) == [some_jobs["failed"], some_jobs["running"]]
    assert listed("--order", "run") == [some_jobs["ready"], some_jobs["scheduled"]]
    assert listed("--task", "mail", "--state", "failed") == []
    assert listed("--state", "retrying") == []
    gw("reschedule", some_jobs["scheduled"], "--attempts", 1).check()
    assert listed("--state", "retrying") == [some_jobs["scheduled"]]


def test_a_listed_job_has_stable_keys_and_times_in_utc(gw: Call, some_jobs: dict[str, int]) -> None:
    jobs = gw("list", "--json").json
    for job, state in zip(jobs, some_jobs, strict=True):
        assert list(job) == JOB_KEYS
        assert job["state"] == state
        assert job["run_at"].endswith("Z")
    assert jobs[3]["last_error"] == "gave up"
    assert jobs[2]["locked_by"] == "pool-1"


def test_people_get_a_table(gw: Call, some_jobs: dict[str, int]) -> None:
    result = gw("list", "--payload", "--limit", 4).check()
    head, first, *_ = result.out.splitlines()
    titles = "ID TASK STATE ATTEMPTS PRIORITY RUN AT QUEUE KEY LAST ERROR PAYLOAD"
    assert head.split() == titles.split(" ")
    assert first.split()[:5] == ["1", "mail", "ready", "0/25", "0"]
    assert first.endswith('{"n":1}')
    assert "PAYLOAD" not in gw("list").out
    assert "Only the first 4 jobs are shown" in result.err
    assert gw("list", "--task", "nothing").out == "No jobs.\n"


def test_nothing_in_a_job_can_steer_the_terminal(gw: Call) -> None:
    add(gw, "bad\x1b[31m", "--key", "a\rb")
    out = gw("list").out + gw("show", 1).out
    assert "\x1b" not in out
    assert "\r" not in out


def test_on_a_terminal_the_table_is_drawn_for_its_width(database_url: str, gw: Call) -> None:
    add(gw, "mail", "--key", "[bold]not markup[/bold]")
    leader, follower = pty.openpty()
    try:
        process = subprocess.Popen(
            [*COMMAND, "list"],
            stdout=follower,
            env=clean_environment(DATABASE_URL=database_url, COLUMNS="200"),
        )
        os.close(follower)
        shown = b""
        while True:
            try:
                part = os.read(leader, 4096)
            except OSError:  # Linux: the other side is closed
                break
            if not part:
                break
            shown += part
        assert process.wait(timeout=60) == 0
    finally:
        os.close(leader)
    assert "[bold]not markup[/bold]" in shown.decode()
    assert "\x1b[1m" in shown.decode()  # headings are bold


def test_a_job_is_shown_with_everything(gw: Call, some_jobs: dict[str, int]) -> None:
    result = gw("show", some_jobs["ready"]).check()
    assert result.out.startswith("id               1\ntask_identifier  mail\nstate            ready\n")
    assert '"n": 1' in result.out
    assert result.out.endswith("\nIt is ready and should start within the poll interval.\n")
    one = gw("show", some_jobs["ready"], "--json").json
    assert list(one) == [
        *JOB_KEYS,
        "history",
        "errors",
        "progress",
        "is_cancelled",
        "cancel_reason",
        "explanation",
    ]
    assert one["explanation"]["kind"] == "soon"
    assert [job["id"] for job in gw("show", 1, 2, "--json").json] == [1, 2]
    trace = '{"trace_id": "0af76519", "span_id": "b7ad6b71"}'
    traced = gw("add", "mail", f'{{"n": 5, "_trace": {trace}}}', "--json").json
    shown = gw("show", traced["id"]).check().out
    assert '"_trace"' not in shown
    assert "0af76519 (span b7ad6b71)" in shown


def test_showing_a_job_that_is_not_there_ends_with_status_1(gw: Call) -> None:
    result = gw("show", 99)
    assert (result.status, result.out) == (1, "")
    assert result.err.startswith("99: no such job, and nothing is kept of it. It never existed, or it ")


# -- complete, fail, reschedule, remove --------------------------------------------------------------------


def test_jobs_are_completed_by_id_and_by_key(gw: Call) -> None:
    ids = [add(gw, "t", "--key", key)["id"] for key in ("a", "b", "c")]
    result = gw("complete", ids[0], ids[1], ids[0], "--key", "c").check()
    assert result.out == "Completed 3 jobs.\n"
    assert gw("list", "--json").json == []


def test_jobs_that_were_not_touched_are_named_with_the_reason(gw: Call, some_jobs: dict[str, int]) -> None:
    result = gw("complete", some_jobs["ready"], some_jobs["running"], 99, "--key", "unknown")
    assert result.status == 1
    assert result.out == "Completed 1 job.\n"
    assert result.err.splitlines() == [
        "unknown: no job has this key",
        f"{some_jobs['running']}: locked by pool-1",
        "99: no such job",
    ]
    result = gw("fail", some_jobs["running"], "--json")
    assert result.status == 1
    assert result.json == {
        "failed": [],
        "untouched": [{"id": some_jobs["running"], "key": None, "reason": "locked by pool-1"}],
    }


def test_jobs_are_given_up_with_a_reason(gw: Call) -> None:
    job_id = add(gw, "t")["id"]
    (failed,) = gw("fail", job_id, "--reason", "not needed", "--json").check().json["failed"]
    assert (failed["last_error"], failed["attempts"]) == ("not needed", failed["max_attempts"])
    assert gw("fail", job_id).check().out == "Failed 1 job.\n"
    assert gw("show", job_id, "--json").json["last_error"] == "Manually marked as failed"


def test_jobs_are_rescheduled_and_zero_is_a_value(gw: Call) -> None:
    job_id = add(gw, "t", "--priority", 5, "--key", "k")["id"]
    gw("fail", job_id).check()
    result = gw(
        "reschedule", "--key", "k", "--run-at", "2031-01-01T00:00:00Z", "--attempts", 0, "--priority", 0,
        "--max-attempts", 7, "--json",
    )  # fmt: skip
    (job,) = result.check().json["rescheduled"]
    assert (job["attempts"], job["priority"], job["max_attempts"]) == (0, 0, 7)
    assert job["run_at"] == "2031-01-01T00:00:00Z"
    (job,) = gw("reschedule", job_id, "--run-at", "now", "--json").check().json["rescheduled"]
    assert gw("show", job_id, "--json").json["state"] == "ready"


def test_managing_commands_say_what_they_miss(call: Call) -> None:
    assert "Name the jobs by id or with --key, choose them by filters" in call("complete").err
    assert "Name a change" in call("reschedule", 1).err
    assert "Missing argument 'KEY...'" in call("remove").err
    assert call("complete", "abc").status == 2


def test_jobs_are_removed_by_key(gw: Call, some_jobs: dict[str, int]) -> None:
    result = gw("remove", "later", "busy", "unknown")
    assert result.status == 1
    assert result.out.splitlines() == [
        "Removed 1 job.",
        f"busy: job {some_jobs['running']} is running; its key was removed and it will not be retried",
    ]
    assert result.err == "unknown: no job has this key\n"
    add(gw, "t", "--key", "again")
    result = gw("remove", "again", "--json").check().json
    assert [job["key"] for job in result["removed"]] == ["again"]
    assert (result["running"], result["missing"]) == ([], [])


# -- stats and queues --------------------------------------------------------------------------------------


def test_statistics_count_by_state_and_task(gw: Call, some_jobs: dict[str, int]) -> None:
    found = gw("stats", "--json").check().json
    assert found["jobs"] == {"ready": 1, "scheduled": 1, "running": 1, "failed": 1, "total": 4}
    assert found["tasks"]["mail"] == {"ready": 1, "scheduled": 1, "running": 0, "failed": 0, "total": 2}
    assert (found["queues"], found["locked_queues"], found["is_estimate"]) == (1, 0, False)
    assert found["oldest_ready_at"].endswith("Z")
    out = gw("stats").check().out
    assert out.splitlines()[0].split() == ["TASK", "READY", "SCHEDULED", "RUNNING", "FAILED", "TOTAL"]
    assert out.splitlines()[3].split() == ["(all)", "1", "1", "1", "1", "4"]
    assert "1 named queue, 0 locked." in out


def test_statistics_of_an_empty_queue_say_so(gw: Call) -> None:
    assert "No jobs." in gw("stats").check().out
    assert gw("stats", "--json").json["oldest_ready_at"] is None


async def test_queues_are_shown_with_their_holders(
    gw: Call, connection: asyncpg.Connection, spawn: Call, database_url: str
) -> None:
    for statement in (
        "select graphile_worker.add_job('t', queue_name => 'full') from generate_series(1, 2)",
        "select graphile_worker.add_job('t', queue_name => 'held')",
        "update graphile_worker._private_job_queues set locked_at = now(), locked_by = 'pool-1' "
        "where queue_name = 'held'",
    ):
        await connection.execute(statement)
    found = spawn("queues", "--json", DATABASE_URL=database_url).check().json
    assert [(queue["queue_name"], queue["jobs"], queue["ready"], queue["locked_by"]) for queue in found] == [
        ("full", 2, 2, None),
        ("held", 1, 1, "pool-1"),
    ]
    out = spawn("queues", "--limit", 1, DATABASE_URL=database_url).check().out
    assert out.splitlines()[1].split() == ["full", "2", "2"]
    spawn("force-unlock", "pool-1", DATABASE_URL=database_url).check()
    assert await connection.fetchval("select count(locked_by) from graphile_worker._private_job_queues") == 0


def test_without_named_queues_that_is_said(gw: Call) -> None:
    assert gw("queues").check().out == "No named queues.\n"
