"""Whether workers hold batches, as the server sees it."""

from __future__ import annotations

from typing import Any

HOLD_LONG = {"GRAPHILE_WORKER_HOLD": "1"}
"""So that batches are held on a busy machine too."""

HELD = """
select count(*) from pg_stat_activity session
where session.datname = current_database() and session.state = 'idle in transaction'
and exists (
  select from pg_locks held
  where held.pid = session.pid and held.locktype = 'advisory' and held.mode = 'ShareLock' and held.granted
)
and exists (
  select from pg_locks held
  where held.pid = session.pid and held.relation = 'graphile_worker._private_jobs'::regclass
  and held.mode = 'RowShareLock'
)
"""
"""Open transactions of sessions for held batches."""


async def is_holding(connection: Any) -> bool:
    """Whether a batch is held at the moment."""
    return bool(await connection.fetchval(HELD))
