"""A worker of the released state, as the database sees it: its sessions, its locks and its statements.

The texts are those that `released/make.py` took from a checkout of that state. `later_objects.sql` has what
came after it, before the Python-only objects were put together by subject.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import asyncpg

from support.working import SCHEMA

FOLDER = Path(__file__).parent / "released"
HEAD = re.compile(r"^-- statement (\S+)\n", re.MULTILINE)
RELEASED, LATER = 24, 29  # the last Python-only object of `schema.sql` and of `later_objects.sql`
DAY = 86400.0  # seconds
RUN_AT = 3  # the column, in seconds since 1970


@cache
def released_schema(number: int = RELEASED) -> str:
    """The script that gives an empty database the Python-only objects up to this number."""
    script = _script()
    return f"{script[: _end_of(number, script)]}commit;\n"


def released_objects(number: int) -> str:
    """The part of the script that gives a database the objects with this number."""
    script = _script()
    return script[_end_of(number - 1, script) : _end_of(number, script)]


@cache
def _script() -> str:
    schema = (FOLDER / "schema.sql").read_text().rstrip().removesuffix("commit;")
    return schema + (FOLDER / "later_objects.sql").read_text()


def _end_of(number: int, script: str) -> int:
    """Where the script has recorded the number in the ledger."""
    found = re.search(rf"^values \({number}, '\w+'\)\non conflict \(id\) do nothing;\n", script, re.MULTILINE)
    assert found is not None
    return found.end()


@cache
def released_statements() -> dict[str, str]:
    """Every statement of a worker, by its name."""
    _, *parts = HEAD.split((FOLDER / "statements.sql").read_text())
    return dict(zip(parts[::2], parts[1::2], strict=True))


class ReleasedWorker:
    """Has what a real one has: a session with its lock, one for fetches and writes, one for held batches."""

    def __init__(self, url: str, *tasks: str, pool_id: str = "pool-released", grace: float = 0.5) -> None:
        self.pool_id = pool_id
        self.completed: list[int] = []
        self._url = url
        self._tasks = tasks
        self._grace = timedelta(seconds=grace)
        self._stack = AsyncExitStack()
        self._held: Any = None

    async def __aenter__(self) -> ReleasedWorker:
        self._proof, self._session, self._held_batches = [await self._connect() for _ in range(3)]
        await self._session.fetchrow(statement("session/tune_session"))
        await self._session.fetchval(
            statement("recovery/register_worker"), self.pool_id, "somewhere", 1, "0.1.0", list(self._tasks),
            4, None, "lock", None, timedelta(seconds=0.5), self._grace,
        )  # fmt: skip
        await self._proof.fetchrow(statement("recovery/tune_heartbeat_session"))
        assert await self._proof.fetchval(statement("recovery/lock_worker"), SCHEMA, self.pool_id)
        await self._held_batches.fetchrow(statement("session/tune_session"))
        await self._held_batches.fetchrow(statement("session/tune_hold_session"), SCHEMA, self.pool_id)
        assert await self.beat()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _connect(self) -> Any:
        connection = await asyncpg.connect(self._url, server_settings={"application_name": "graphile_worker"})
        self._stack.callback(connection.terminate)
        return connection

    def die(self) -> None:
        """Lose all sessions at once, without a goodbye."""
        for connection in (self._proof, self._session, self._held_batches):
            connection.terminate()

    async def beat(self, running: Sequence[int] = ()) -> bool:
        """Send a heartbeat; whether the worker still counts as alive."""
        pid = self._proof.get_server_pid()
        row = await self._proof.fetchrow(
            statement("recovery/heartbeat_with_jobs"), self.pool_id, "lock", pid, len(running), list(running),
            [1.0] * len(running),
        )  # fmt: skip
        return row is not None and row["pid"] == pid

    async def leave(self) -> None:
        """The end of a worker that has nothing left."""
        await self._proof.execute(statement("recovery/deregister_worker"), self.pool_id)
        await self._proof.fetchval(statement("recovery/unlock_worker"), SCHEMA, self.pool_id)

    # -- jobs ----------------------------------------------------------------------------------------------

    async def fetch(self, *tasks: str, limit: int = 10) -> list[Any]:
        """Lock jobs of these tasks, with or without a queue."""
        ids = await self._ids_of(tasks)
        rows: list[Any] = await self._session.fetch(
            statement("fetch/get_jobs"), self.pool_id, ids, limit, None, None
        )
        return rows

    async def complete(self, *job_ids: int) -> None:
        """Write that plain jobs have ended well."""
        missing = await self._session.fetch(statement("write/complete_jobs"), self.pool_id, list(job_ids))
        assert missing == []
        self.completed += job_ids

    async def write(
        self,
        completed: Sequence[int] = (),
        failed: Sequence[int] = (),
        *,
        go_on_with: Sequence[str] | None = None,
    ) -> list[int]:
        """Write outcomes and unlock queues; with tasks, lock the next job of each queue and return its id."""
        ids = None if go_on_with is None else await self._ids_of(go_on_with)
        count = len(failed)
        rows = await self._session.fetch(
            statement("write/write_outcomes"), self.pool_id, list(completed), ids, None, None, list(failed),
            ["it failed"] * count, *([None] * count for _ in range(4)),
        )  # fmt: skip
        last = rows[0]
        assert last["completed"] is None
        assert {abs(job_id) for job_id in last["failed"] or ()} == set(failed)
        self.completed += completed
        return [row["id"] for row in rows if row["id"] is not None]

    async def keep(self, completed: Any, failed: Any) -> None:
        """Write that one job has ended with a result, and one has failed, and keep both in the history."""
        for table in ("history", "errors"):
            await self._session.fetchval(
                statement("history/add_partitions"), f"{SCHEMA}._private_py_{table}", [DAY], 1
            )
        rows = await self._session.fetch(
            statement("write/write_and_keep"), self.pool_id, [], None, None, None,
            [failed["id"]], ["ValueError: no"], [None], [None], [0.2], [DAY], [True], [DAY], ["ValueError"],
            ["the traceback"], ["f" * 16], [failed[RUN_AT]],
            [completed["id"]], [0.1], ['{"answer": 42}'], DAY, True,
            [], "1.0", SCHEMA, [None], [None], [None], [None], [failed["attempts"]], "completed",
        )  # fmt: skip
        assert rows[0]["completed"] is None
        assert len(rows[0]["failed"]) == 1

    async def give_back(self, *job_ids: int) -> None:
        """Return jobs that were not started."""
        rows = await self._session.fetch(
            statement("write/return_jobs"), self.pool_id, list(job_ids), None, [], 0.0
        )
        assert {abs(row[0]) for row in rows} == set(job_ids)

    # -- held batches --------------------------------------------------------------------------------------

    async def hold(self, *tasks: str, limit: int = 10) -> list[int]:
        """Begin a transaction that locks the rows of jobs; their ids."""
        ids = await self._ids_of(tasks)
        self._held = self._held_batches.transaction()
        await self._held.start()
        rows = await self._held_batches.fetch(statement("hold/get_held_jobs"), limit, ids, None, None)
        return [row["id"] for row in rows]

    async def end_batch(self, completed: Sequence[int], outlasting: Sequence[int]) -> None:
        """Delete the jobs that have ended, lock those that run on, and commit."""
        deleted = await self._held_batches.execute(statement("hold/delete_jobs"), list(completed))
        locked = await self._held_batches.execute(
            statement("hold/lock_jobs"), self.pool_id, list(outlasting), None
        )
        await self._held.commit()
        assert (deleted, locked) == (f"DELETE {len(completed)}", f"UPDATE {len(outlasting)}")
        self.completed += completed

    # -- recovery ------------------------------------------------------------------------------------------

    async def sweep(self) -> list[int]:
        """Recover the jobs of dead pools, whatever version these have; the ids of the jobs."""
        async with self._session.transaction():
            if not await self._session.fetchval(statement("recovery/sweep_lock"), "30s"):
                return []
            lost = await self._session.fetch(
                statement("recovery/mark_unreachable_workers"), SCHEMA, self.pool_id
            )
            dead = [row["id"] for row in lost if row["remaining"] <= 0]
            if not dead:
                return []
            orphans = await self._session.fetch(statement("recovery/orphaned_jobs"), dead)
            count = len(orphans)
            recovered = await self._session.fetch(
                statement("recovery/recover_jobs"), dead, [row["id"] for row in orphans], ["return"] * count,
                ["recovered"] * count, [row["counts"] for row in orphans], timedelta(0), [],
            )  # fmt: skip
            await self._session.fetch(statement("recovery/delete_dead_workers"), dead)
            return [row["id"] for row in recovered]

    async def _ids_of(self, tasks: Sequence[str]) -> str:
        ids = await self._session.fetchval(
            f"select array_agg(id)::text from {SCHEMA}._private_tasks where identifier = any ($1)",
            list(tasks),
        )
        return ids or "{}"


def statement(name: str) -> str:
    return released_statements()[name]
