"""The test's own table, in which tasks of worker processes note that they began and ended."""

from __future__ import annotations

from typing import Any

from support.working import PATIENCE, until


class History:
    """What happened, in order."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def made(self) -> History:
        await self._connection.execute(
            """
            create table history (
              number bigserial primary key, job_id bigint, pid integer, event text, attempts integer,
              at timestamptz default clock_timestamp()
            );
            create table released (at timestamptz default now());
            """
        )
        return self

    async def release(self) -> None:
        """Let tasks that wait for it go on, in every process."""
        await self._connection.execute("insert into released default values")

    async def events(self, job_id: int | None = None) -> list[tuple[str, int]]:
        """What happened and in which process, in order."""
        rows = await self._connection.fetch(
            "select event, pid from history where $1::bigint is null or job_id = $1 order by number", job_id
        )
        return [(row["event"], row["pid"]) for row in rows]

    async def attempts(self) -> set[int]:
        """The number of the attempt that jobs saw when they began."""
        rows = await self._connection.fetch("select attempts from history where event = 'start'")
        return {row["attempts"] for row in rows}

    async def until_count(self, event: str, count: int, *, timeout: float = PATIENCE) -> None:
        async def has_happened() -> bool:
            events = await self.events()
            return sum(each == event for each, _ in events) >= count

        await until(has_happened, timeout=timeout)
