"""`graphile-worker queues set` and `reset`; tests of the list are in test_jobs.py."""

from __future__ import annotations

import asyncio
from typing import Any

from support.cases import looped
from support.command_line import Call


def test_the_concurrency_of_a_queue_is_set_and_reset(gw: Call) -> None:
    gw("add", "t", "--queue", "tenant:7").check()
    done = gw("queues", "set", "tenant:7", "--concurrency", "10").check()
    assert done.out == "Up to 10 jobs of tenant:7 may run at once.\n"
    (found,) = gw("queues", "--json").check().json
    assert found["queue_name"] == "tenant:7"
    assert found["concurrency"] == 10
    lines = gw("queues").check().out.splitlines()
    assert lines[0].split()[:3] == ["QUEUE", "CONCURRENCY", "JOBS"]
    assert lines[1].split() == ["tenant:7", "10", "1", "1"]
    done = gw("queues", "reset", "tenant:7", "--json").check()
    assert done.json == {"queue_name": "tenant:7", "concurrency": None}
    assert gw("queues", "list", "--json").check().json[0]["concurrency"] == 1


async def test_both_are_in_the_audit(gw: Call, connection: Any) -> None:
    for arguments in (("set", "q", "--concurrency", "3"), ("reset", "q"), ()):
        (await asyncio.to_thread(gw, "queues", *arguments)).check()
    rows = await connection.fetch("select target from graphile_worker._private_py_audit order by id")
    assert [row["target"] for row in rows] == ["concurrency 3, action set, name q", "action reset, name q"]


@looped(
    ("arguments", "message"),
    [
        (["set"], "`queues set` needs the NAME of a queue."),
        (["set", "q"], "Give --concurrency."),
        (["reset", "q", "--concurrency", "1"], "--concurrency is for `queues set NAME`."),
        (["list", "q"], "`queues list` takes no NAME."),
        (["reset", "q", "--exact"], "--limit and --exact are for `queues list`."),
        (["set", "q", "--concurrency", "0"], "--concurrency"),
    ],
)
def test_wrong_usage_is_explained(gw: Call, arguments: list[str], message: str) -> None:
    result = gw("queues", *arguments)
    assert result.status == 2
    assert message in result.err
