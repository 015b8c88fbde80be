"""The watcher: looks into the table again and again, and notes which jobs were ready and not taken.

It takes no lock, so that no worker notices it. A job that is in one look after the other, in the same version
of its row, was ready all the time: to lock it a worker would have made another version, or have its row
locked by a transaction that is running.
"""

from __future__ import annotations

import asyncio
import time

import asyncpg

from chaos.adders import PAUSE, TRY_FOR
from chaos.history import Waited
from support.working import SCHEMA

EVERY = 0.25  # seconds
LONGEST_GAP = 1.0  # seconds between two looks; after more than that nothing is known of the time in between
NOTED_FROM = 1.0  # seconds
READY = f"""
with running as materialized (
  select
    array(select txid_snapshot_xip(txid_current_snapshot())) as ids,
    txid_snapshot_xmax(txid_current_snapshot()) as next
)
select job.id, job.xmin::text as version, job.payload->>'token' as token, task.identifier as task
from {SCHEMA}._private_jobs job join {SCHEMA}._private_tasks task on task.id = job.task_id, running
where job.is_available and job.job_queue_id is null and job.run_at <= now()
  and job.xmax::text::bigint <> all (running.ids) and job.xmax::text::bigint < running.next
order by job.id
limit 500
"""
"""Those that were added first: they have waited longest."""


class Watcher:
    """One session that looks."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._looked_at = 0.0
        self._seen: dict[int, tuple[str, Waited]] = {}
        self._waited: list[Waited] = []

    @property
    def waited(self) -> list[Waited]:
        """Every wait that lasted, also those that last still."""
        return self._waited + self._lasting(self._seen)

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                connection = await asyncpg.connect(self._url, timeout=TRY_FOR)
                try:
                    while not stop.is_set():
                        self._look(await connection.fetch(READY, timeout=TRY_FOR))
                        await asyncio.sleep(EVERY)
                finally:
                    connection.terminate()
            except Exception:  # the server is away
                await asyncio.sleep(PAUSE)

    def _look(self, rows: list[asyncpg.Record]) -> None:
        now = time.monotonic()
        last, self._seen = self._seen, {}
        is_gap, self._looked_at = now > self._looked_at + LONGEST_GAP, now
        for row in rows:
            version, began = row["version"], now
            known = last.get(row["id"])
            if known is not None and known[0] == version and not is_gap:
                began = known[1].began
                del last[row["id"]]
            waited = Waited(job_id=row["id"], token=row["token"], task=row["task"], began=began, ended=now)
            self._seen[row["id"]] = version, waited
        self._waited += self._lasting(last)

    def _lasting(self, seen: dict[int, tuple[str, Waited]]) -> list[Waited]:
        return [waited for _, waited in seen.values() if waited.ended - waited.began >= NOTED_FROM]
