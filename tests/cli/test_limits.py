"""`graphile-worker limits`, and what the doctor says about limits."""

from __future__ import annotations

from typing import Any

import pytest

from graphile_worker import Limit, run, task
from support.cases import looped
from support.command_line import Call
from support.working import SCHEMA


@task("ask", limit=Limit("openai", concurrency=20, rate=(500, 60), burst=50))
async def ask() -> None:
    """A task with a limit."""


@pytest.fixture
async def known(database_url: str) -> str:
    """A database in which a worker with the limit has started."""
    async with run(connection_string=database_url, task_list=[ask], handle_signals=False):
        pass
    return database_url


def test_limits_are_shown(call: Call, known: str) -> None:
    lines = call("limits", "-c", known).check().out.splitlines()
    assert lines[0].lower() == "limit   concurrency  rate          burst  running  set by hand  tasks"
    assert lines[1].split() == ["openai", "20", "500", "in", "1", "min", "50", "0", "ask"]
    (found,) = call("limits", "-c", known, "--json").check().json
    assert found == {
        "name": "openai",
        "concurrency": 20,
        "rate": {"starts": 500, "period": 60.0},
        "burst": 50,
        "running": 0,
        "may_start": 50,
        "overridden": [],
        "set_at": None,
        "tasks": ["ask"],
    }


def test_bounds_are_set_and_reset(call: Call, known: str) -> None:
    arguments = ("--concurrency", "5", "--rate", "10/s", "-c", known, "--json")
    (found,) = call("limits", "set", "openai", *arguments).check().json
    assert (found["concurrency"], found["rate"], found["burst"]) == (5, {"starts": 10, "period": 1.0}, 50)
    assert found["overridden"] == ["concurrency", "rate"]
    (found,) = call("limits", "reset", "openai", "-c", known, "--json").check().json
    assert (found["concurrency"], found["overridden"]) == (20, [])


@looped(
    ("arguments", "message"),
    [
        (["set"], "`limits set` needs the NAME of a limit."),
        (["set", "openai"], "Give --concurrency, --rate or --burst."),
        (["reset", "openai", "--burst", "1"], "--burst is for `limits set NAME`."),
        (["list", "openai"], "`limits list` takes no NAME."),
        (["set", "openai", "--rate", "often"], "'often' is not a rate such as 500/1m or 10/s"),
        (["set", "openai", "--rate", "0/1m"], "is not a rate"),
        (["set", "openai", "--concurrency", "-1"], "--concurrency"),
    ],
)
def test_wrong_usage_is_explained(call: Call, arguments: list[str], message: str) -> None:
    result = call("limits", *arguments)
    assert result.status == 2
    assert message in result.err


def test_an_unknown_limit_is_named(call: Call, known: str) -> None:
    result = call("limits", "set", "opnai", "--burst", "1", "-c", known)
    assert result.status == 1
    assert "there is no limit 'opnai'; did you mean 'openai'?" in result.err


def test_without_limits_it_says_so(call: Call, database_url: str) -> None:
    assert call("limits", "-c", database_url).check().out == "There are no limits.\n"


async def test_the_doctor_warns_of_jobs_that_no_limit_counts(
    spawn: Call, known: str, connection: Any
) -> None:
    def findings() -> list[tuple[str, str]]:
        found = spawn("doctor", "-c", known, "--json").json["findings"]
        return [(one["severity"], one["summary"]) for one in found if one["check"] == "limits"]

    assert findings() == [("ok", "1 limit; no worker ignores one")]
    await connection.execute(f"select {SCHEMA}.add_job('ask')")
    await connection.execute(
        f"update {SCHEMA}._private_jobs set locked_by = 'worker-of-node', locked_at = now(), attempts = 1"
    )
    assert findings() == [
        ("warning", "worker-of-node runs 1 job of ask and does not keep the limit 'openai'")
    ]
