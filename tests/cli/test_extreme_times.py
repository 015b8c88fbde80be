"""Times that Python cannot represent, in every column: all commands can still show the rows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support.command_line import Call

TIMES = ("infinity", "-infinity", "294276-12-31 23:59:59+00", "10000-01-01+00", "4714-11-24 00:00:00+00 BC")
TABLES = {
    "_private_jobs": ("run_at", "created_at", "updated_at"),
    "_private_job_queues": ("locked_at",),
    "_private_py_workers": ("started_at", "last_seen_at", "lost_at"),
    "_private_known_crontabs": ("known_since", "last_execution"),
    "migrations": ("ts",),
}
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("list",),
    *(("list", "--state", state) for state in ("ready", "scheduled", "running", "failed")),
    *(("list", "--order", order) for order in ("newest", "run")),
    ("show", "1"),
    ("show", "2"),
    ("show", "3"),
    ("stats",),
    ("stats", "--exact"),
    ("queues",),
    ("workers",),
    ("sweep", "--dry-run"),
    ("doctor",),
)


async def prepare(connection: Any, time: str) -> None:
    """A waiting job, a failed one and one that a dead worker has locked together with its queue."""
    for queue in (None, None, "q"):
        await connection.execute("select graphile_worker.add_job('work', queue_name => $1)", queue)
    await connection.execute(
        "update graphile_worker._private_jobs set attempts = max_attempts, last_error = 'no' where id = 2"
    )
    await connection.execute(
        f"update graphile_worker._private_jobs set locked_by = 'pool-x', locked_at = '{time}' where id = 3"
    )
    await connection.execute("update graphile_worker._private_job_queues set locked_by = 'pool-y'")
    await connection.execute(
        "insert into graphile_worker._private_py_workers "
        "(id, host, pid, version, tasks, concurrency, liveness, heartbeat_interval, grace, backend_pid) "
        "values ('pool-x', 'here', 1, '1', '{work}', 1, 'lock', '10 s', '1 hour', 1)"
    )
    await connection.execute(
        "insert into graphile_worker._private_known_crontabs (identifier, known_since) values ('c', now())"
    )
    for table, columns in TABLES.items():
        values = ", ".join(f"{column} = '{time}'" for column in columns)
        await connection.execute(f"update graphile_worker.{table} set {values}")


@pytest.mark.parametrize("time", TIMES)
async def test_every_command_that_shows_something_shows_it(gw: Call, connection: Any, time: str) -> None:
    await prepare(connection, time)
    for command in COMMANDS:
        for format in ((), ("--json",)):
            result = await asyncio.to_thread(gw, *command, *format)
            is_diagnosis = command[0] == "doctor"
            assert result.status in ((0, 1) if is_diagnosis else (0,)), (command, result)
            assert "Traceback" not in result.err, (command, result)
            assert not is_diagnosis or "not checked" not in result.out, (command, result)
