"""Changing all jobs that match a filter by command: the count, the question, progress and a stop."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.terminal import Terminal
from graphile_worker.cli.support.bulk_change import LONG
from support.cases import looped
from support.command_line import COMMAND, Call, clean_environment
from support.server import DatabaseServer

RETRY = ("reschedule", "--state", "failed", "--run-at", "now", "--attempts", "0")
MANY = 2 * LONG

Run = Callable[[str], None]
Open = Callable[..., Terminal]


@pytest.fixture
def run(server: DatabaseServer, database_url: str) -> Run:
    """Runs a statement in the test's database."""
    return lambda statement: server.run(database_url, lambda connection: connection.execute(statement))


def failed_jobs(task: str, number: int) -> str:
    return (
        f"select graphile_worker.add_jobs(array(select json_populate_record(null::graphile_worker.job_spec, "
        f'\'{{"identifier": "{task}"}}\') from generate_series(1, {number})));'
        "select graphile_worker.permanently_fail_jobs(array(select id from graphile_worker._private_jobs), "
        "'TimeoutError: no answer')"
    )


@pytest.fixture
def some_failed(run: Run) -> None:
    run(failed_jobs("send_email", 12))
    run(failed_jobs("charge_card", 4))


def states(gw: Call) -> dict[str, int]:
    counts: dict[str, int] = gw("stats", "--json").check().json["jobs"]
    return {state: number for state, number in counts.items() if number and state != "total"}


# -- without a terminal ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("some_failed")
def test_all_failed_jobs_are_retried(gw: Call) -> None:
    result = gw(*RETRY, "--yes").check()
    assert (result.out, result.err) == ("Rescheduled 16 jobs (send_email 12, charge_card 4).\n", "")
    assert states(gw) == {"ready": 16}
    assert gw(*RETRY, "--yes").check().out == "No jobs to reschedule.\n"


@pytest.mark.usefixtures("some_failed")
def test_retry_sends_failed_jobs_back_and_no_others(gw: Call, run: Run) -> None:
    run("select graphile_worker.add_job('charge_card', run_at => now() + interval '1 day')")
    assert gw("retry", "--task", "charge_card", "--dry-run").check().out == (
        "This would retry 4 jobs (charge_card).\n"
    )
    assert gw("retry", "--task", "charge_card", "--yes").check().out == "Retried 4 jobs (charge_card).\n"
    assert states(gw) == {"failed": 12, "ready": 4, "scheduled": 1}
    result = gw("retry", "1", "17")
    assert (result.status, result.out) == (1, "Retried 1 job.\n")
    assert result.err == "17: not failed, but scheduled\n"
    assert gw("retry", "--all", "--yes").check().out == "Retried 11 jobs (send_email).\n"
    assert states(gw) == {"ready": 16, "scheduled": 1}
    assert gw("retry", "--state", "ready").status == 2


@pytest.mark.usefixtures("some_failed")
def test_without_a_terminal_it_must_be_confirmed_with_yes(gw: Call) -> None:
    result = gw(*RETRY)
    assert (result.status, result.out) == (2, "")
    assert result.err == (
        "Error: This would reschedule 16 jobs (send_email 12, charge_card 4). To do it without a question, "
        "add --yes:\n\n    graphile-worker reschedule --state failed --run-at now --attempts 0 --yes\n"
    )
    assert states(gw) == {"failed": 16}


@pytest.mark.usefixtures("some_failed")
@looped("style", ["-c {}", "--connection {}", "-c{}", "--connection={}"])
def test_the_command_to_repeat_contains_no_password(call: Call, database_url: str, style: str) -> None:
    url = database_url.replace("//postgres@", "//postgres:secret@")
    assert "secret" in url
    for arguments in (("cancel", "--all"), ("reschedule", "--state", "failed", "--run-at", "now")):
        result = call(*(word.replace("{}", url) for word in style.split()), *arguments)
        assert result.status == 2
        assert "\n    graphile-worker " in result.err
        assert "postgres:***@" in result.err
        assert "secret" not in result.err


@pytest.mark.usefixtures("some_failed")
def test_a_dry_run_only_counts(gw: Call) -> None:
    result = gw("cancel", "--task", "charge_card", "--dry-run").check()
    assert result.out == "This would cancel 4 jobs (charge_card).\n"
    assert gw("complete", "--all", "--dry-run", "--json").check().json == {
        "changed": 16,
        "asked": 0,
        "skipped": 0,
        "failed": 16,
        "tasks": {"charge_card": 4, "send_email": 12},
        "last_id": 16,
        "up_to": 16,
        "is_complete": True,
        "is_dry_run": True,
        "problem": None,
    }
    assert states(gw) == {"failed": 16}


@pytest.mark.usefixtures("some_failed")
def test_every_command_takes_filters(gw: Call) -> None:
    gw(*RETRY, "--task", "charge_card", "--yes").check()
    assert states(gw) == {"failed": 12, "ready": 4}
    result = (
        gw("fail", "--state", "ready", "--limit", 3, "--reason", "enough", "--yes", "--json").check().json
    )
    assert (result["changed"], result["tasks"], result["is_complete"]) == (3, {"charge_card": 3}, True)
    assert [job["last_error"] for job in gw("list", "--error", "ENOUGH", "--json").json] == ["enough"] * 3
    assert gw("complete", "--error", "enough", "-y").check().out == "Completed 3 jobs (charge_card).\n"
    out = gw("cancel", "--failed-since", "1h", "--older-than", "0s", "-y").check().out
    assert out == "Cancelled 12 jobs (send_email).\n"
    assert states(gw) == {"ready": 1}
    assert (
        gw("cancel", "--since", "1h", "--until", "0s", "-y").check().out == "Cancelled 1 job (charge_card).\n"
    )


def test_many_tasks_are_not_all_named(gw: Call, run: Run) -> None:
    for number in range(8):
        run(f"select graphile_worker.add_job('task_{number}')")
    out = gw("cancel", "--all", "--dry-run").out
    assert (
        out == "This would cancel 8 jobs (task_0 1, task_1 1, task_2 1, task_3 1, task_4 1, 3 other tasks).\n"
    )


@pytest.mark.usefixtures("some_failed")
def test_running_jobs_are_left_alone_and_counted(gw: Call, run: Run) -> None:
    run("update graphile_worker._private_jobs set locked_at = now(), locked_by = 'pool-x' where id <= 3")
    out = gw("complete", "--task", "send_email", "--dry-run").check().out
    assert out == "This would complete 9 jobs (send_email). 3 running jobs would be left alone.\n"
    out = gw("complete", "--task", "send_email", "--yes").check().out
    assert out == "Completed 9 jobs (send_email). 3 running jobs were left alone.\n"
    out = gw("complete", "--locked-by", "pool-x", "--yes").check().out
    assert out == "No jobs to complete. Running jobs are left alone: 3.\n"
    assert states(gw) == {"running": 3, "failed": 4}


@pytest.mark.usefixtures("some_failed")
def test_failed_jobs_that_would_stay_failed_are_mentioned(gw: Call) -> None:
    result = gw("reschedule", "--state", "failed", "--run-at", "now", "--yes")
    assert result.status == 2
    assert "so they would stay failed. To retry them from scratch, add --attempts 0:" in result.err
    assert "    graphile-worker reschedule --state failed --run-at now --yes --attempts 0\n" in result.err
    result = gw("reschedule", "--task", "charge_card", "--run-at", "now", "--dry-run").check()
    assert result.out.endswith(" 4 failed jobs would stay failed; add --attempts 0 to retry.\n")
    result = gw("reschedule", "--task", "charge_card", "--run-at", "now", "--yes").check()
    assert result.err == "4 jobs are still failed, with no attempts left; add --attempts 0 to retry.\n"
    result = gw("reschedule", 1, "--run-at", "now").check()
    assert result.err == "1: still failed, no attempts left; add --attempts 0 to retry it\n"
    result = gw("reschedule", "--state", "failed", "--attempts", "0", "--dry-run").check()
    assert result.out.endswith(" which may be hours away; add --run-at now to run them at once.\n")


@looped(
    ("arguments", "message"),
    [
        (["cancel"], "Name the jobs by id or with --key, choose them by filters"),
        (["cancel", "--limit", "5"], "Name the jobs by id or with --key"),
        (["cancel", "1", "--state", "failed"], "Name jobs by id or --key, or choose them by filters"),
        (["cancel", "--key", "k", "--all"], "Name jobs by id or --key, or choose them by filters"),
        (["cancel", "--all", "--task", "t"], "--all means every job; remove it, or the filters."),
        (["cancel", "1", "--dry-run"], "--dry-run is for filters"),
        (["cancel", "--until", "1h", "--older-than", "1h"], "Use --until or --older-than, not both."),
        (["cancel", "--since", "soon"], "nor a period before now such as 5m"),
        (["list", "--failed-since", "2020-01-01T00:00:00"], "has no time zone"),
        (["requeue"], "Did you mean 'retry'?"),
        (["delete"], "Did you mean 'cancel'?"),
    ],
)
def test_what_makes_no_sense_is_refused_before_connecting(
    call: Call, arguments: list[str], message: str
) -> None:
    result = call(*arguments)
    assert result.status == 2
    assert message in result.err


def test_conditions_that_contradict_each_other_are_refused(gw: Call) -> None:
    result = gw("cancel", "--state", "ready", "--failed-since", "1h")
    assert result.status == 1
    assert "state: expected one of failed with failed_since or failed_until; got 'ready'" in result.err


# -- cancel by id ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("some_failed")
def test_jobs_are_cancelled_by_id_and_by_key(gw: Call, run: Run) -> None:
    run("select graphile_worker.add_job('t', job_key => 'k')")
    run("update graphile_worker._private_jobs set locked_at = now(), locked_by = 'pool-x' where id = 3")
    result = gw("cancel", 1, 1, 3, 99, "--key", "k", "--key", "unknown")
    assert result.status == 1
    assert result.out == "Cancelled 2 jobs.\n3: running; worker pool pool-x was asked to end it\n"
    assert result.err.splitlines() == ["unknown: no job has this key", "99: no such job"]
    result = gw("cancel", 2, 3, 99, "--json")
    assert result.status == 1
    assert [job["id"] for job in result.json["removed"]] == [2]
    assert [(job["id"], job["locked_by"]) for job in result.json["asked"]] == [(3, "pool-x")]
    assert (result.json["gone"], result.json["missing_keys"]) == ([99], [])
    assert (result.json["running"], result.json["problem"]) == ([], None)
    assert gw("cancel", 4).check().out == "Cancelled 1 job.\n"
    assert gw("cancel", 3).check().out == "3: running; worker pool pool-x was asked to end it\n"
    assert re.search(r"^cancelled +without a reason$", gw("show", 3).check().out, re.MULTILINE)
    assert gw("show", 3, "--json").json["is_cancelled"] is True


@pytest.mark.usefixtures("some_failed")
def test_running_jobs_are_cancelled_by_filters_too(gw: Call, run: Run) -> None:
    run("update graphile_worker._private_jobs set locked_at = now(), locked_by = 'pool-x' where id <= 3")
    out = gw("cancel", "--task", "send_email", "--dry-run").check().out
    assert out.startswith("This would cancel 12 jobs (send_email). 3 of these are running;")
    result = gw("cancel", "--task", "send_email", "--yes").check()
    assert result.out == "Cancelled 12 jobs (send_email).\n"
    assert result.err == "3 of these are running; their workers were asked to end them.\n"


@pytest.mark.usefixtures("some_failed")
def test_running_jobs_that_cannot_be_cancelled_are_left_alone(gw: Call, run: Run) -> None:
    run("update graphile_worker._private_jobs set locked_at = now(), locked_by = 'pool-x' where id <= 3")
    run("drop table graphile_worker._private_py_cancels")
    result = gw("cancel", 1)
    assert result.status == 1
    assert result.err == (
        "1: running, locked by pool-x; the schema has no table of cancelled jobs; to create "
        "it: graphile-worker migrate\n"
    )
    result = gw("cancel", "--task", "send_email", "--yes").check()
    assert result.out == "Cancelled 9 jobs (send_email). 3 running jobs were left alone.\n"
    assert result.err.startswith("Running jobs were not cancelled: the schema has no table of")


# -- the list ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("some_failed")
def test_failed_jobs_are_listed_with_the_time_of_the_failure(gw: Call, run: Run) -> None:
    assert "FAILED AT" in gw("list").check().out
    (job,) = gw("list", "--state", "failed", "--limit", 1, "--json").json
    assert job["failed_at"] == job["updated_at"]
    assert f"failed_at        {job['failed_at'][:10]}" in gw("show", job["id"]).out
    run("select graphile_worker.add_job('t', flags => array['slow'])")
    out = gw("list").check().out
    assert "RUN AT" in out
    assert "FAILED AT" not in out
    assert [job["task_identifier"] for job in gw("list", "--flag", "slow", "--json").json] == ["t"]


# -- on a terminal -----------------------------------------------------------------------------------------


@pytest.fixture
def opened(place: Path, database_url: str) -> Iterator[Open]:
    """`opened("cancel", …)`: the command in a terminal."""
    started: list[Terminal] = []

    def start(*arguments: object) -> Terminal:
        environment = clean_environment(DATABASE_URL=database_url)
        terminal = Terminal([*COMMAND, *map(str, arguments)], environment, place, columns=120)
        started.append(terminal)
        return terminal

    yield start
    for terminal in started:
        terminal.close()


QUESTION = "This will reschedule 16 jobs (send_email 12, charge_card 4). Continue? [y/N]: "


@pytest.mark.usefixtures("some_failed")
@pytest.mark.parametrize(
    ("answer", "status", "said", "after"),
    [
        ("y\n", 0, "Rescheduled 16 jobs", {"ready": 16}),
        ("\n", 1, "Nothing was changed.", {"failed": 16}),
        ("n\n", 1, "Nothing was changed.", {"failed": 16}),
    ],
)
def test_on_a_terminal_it_asks(
    gw: Call, opened: Open, answer: str, status: int, said: str, after: dict[str, int]
) -> None:
    terminal = opened(*RETRY)
    terminal.until_says(QUESTION)
    terminal.type(answer)
    assert terminal.wait() == status, terminal.screen.text
    assert said in terminal.screen.text
    assert "Traceback" not in terminal.screen.text
    assert states(gw) == after


@pytest.mark.usefixtures("some_failed")
def test_ctrl_c_is_an_answer_too(gw: Call, opened: Open) -> None:
    terminal = opened(*RETRY)
    terminal.until_says(QUESTION)
    while terminal.process.poll() is None:  # one that arrives just before the process reads is not noticed
        terminal.type("\x03")
        for _ in range(5):
            terminal._read()
    assert terminal.wait() == 130, terminal.screen.text
    assert "Traceback" not in terminal.screen.text
    assert states(gw) == {"failed": 16}


def test_many_jobs_get_a_progress_bar(opened: Open, run: Run, gw: Call) -> None:
    run(failed_jobs("send_email", MANY))
    terminal = opened(*RETRY, "--yes")
    assert terminal.wait() == 0, terminal.screen.text
    assert "rescheduling jobs" in terminal.seen
    assert "100%" in terminal.seen
    assert terminal.screen.text.strip() == f"Rescheduled {MANY:,} jobs (send_email)."
    assert states(gw) == {"ready": MANY}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_between_batches(opened: Open, run: Run, gw: Call, number: signal.Signals) -> None:
    run(failed_jobs("send_email", MANY))
    terminal = opened(*RETRY, "--yes", "--rate", "100")
    terminal.until_says("100 jobs")
    terminal.process.send_signal(number)
    assert terminal.wait() == 128 + number, terminal.screen.text
    ready = states(gw)["ready"]
    assert 0 < ready < MANY
    assert ready % 100 == 0
    assert f"Stopped: rescheduled {ready:,} of {MANY:,} jobs." in terminal.screen.text
    assert "Traceback" not in terminal.screen.text


def test_an_error_says_how_far_it_came(opened: Open, run: Run, gw: Call) -> None:
    run(failed_jobs("send_email", MANY))
    terminal = opened(*RETRY, "--yes", "--rate", "100")
    terminal.until_says("100 jobs")
    run("alter function graphile_worker.reschedule_jobs rename to no_such_function")
    assert terminal.wait() == 1, terminal.screen.text
    ready = states(gw)["ready"]
    assert f"Stopped: rescheduled {ready:,} of {MANY:,} jobs." in terminal.screen.text
    assert "graphile-worker: error: " in terminal.screen.text


def test_the_report_of_a_run_is_json(gw: Call, run: Run) -> None:
    run(failed_jobs("send_email", 3))
    report: dict[str, Any] = json.loads(gw(*RETRY, "--yes", "--json").check().out)
    assert (report["changed"], report["failed"], report["is_dry_run"]) == (3, 0, False)
