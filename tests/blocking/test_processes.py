"""The blocking client in real processes: forks, exits, interrupts, gunicorn."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.command_line import clean_environment
from support.worker_process import TESTS
from support.working import wait_until

PROGRAMS = Path(__file__).with_name("programs.py")
TASKS = "select task_identifier from graphile_worker.jobs"


def run(name: str, url: str) -> subprocess.CompletedProcess[str]:
    """Run a program; warnings are errors, also those about what was not closed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(PROGRAMS), name, url],
        env=clean_environment(PYTHONPATH=str(TESTS)),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done


def added(session: Any) -> Counter[str]:
    return Counter(row[0] for row in session.execute(TASKS).fetchall())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fork_before", {"parent": 1, "child": 1}),
        ("fork_after", {"parent": 4, "child": 2}),
        ("fork_with_the_other_client", {"parent": 2}),
        ("forgets_to_release", {"one": 1, "two": 1}),
        ("adds_at_exit", {"one": 1, "two": 1}),
        ("exits_in_a_loop", {"one": 1, "two": 1}),
    ],
)
def test_a_program_ends_without_a_word(
    name: str, expected: dict[str, int], database_url: str, session: Any
) -> None:
    done = run(name, database_url)
    assert (done.stdout, done.stderr) == ("", "")
    assert added(session) == expected


def test_a_child_forked_while_other_threads_call_works(database_url: str, session: Any) -> None:
    run("fork_while_busy", database_url)
    found = added(session)
    assert (found["child"], found["parent"]) == (20, 1)


def test_ctrl_c_ends_a_waiting_call(database_url: str, session: Any) -> None:
    done = run("is_interrupted", database_url)
    assert "interrupted after" in done.stderr
    assert added(session) == {"nothing runs this": 1, "one": 1}


def test_no_connection_is_left_open(database_url: str, session: Any) -> None:
    run("forgets_to_release", database_url)

    def is_alone() -> bool:
        (count,) = session.execute(
            "select count(*) from pg_stat_activity where datname = current_database()"
        ).fetchone()
        return bool(count == 1)

    wait_until(is_alone)  # the server notices the end of a process with a delay
