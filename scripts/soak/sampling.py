"""One look at the workers' processes and at the server. Needs /proc, so it is for Linux."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .result import Sample

CONNECTIONS = """
select count(*) from pg_stat_activity
where datname = current_database() and application_name = 'graphile_worker'
"""
TABLES = """
select relname, pg_total_relation_size(relid) as size, n_dead_tup
from pg_stat_user_tables where schemaname = 'graphile_worker' order by relname
"""
WAITING = "select count(*) from graphile_worker._private_jobs"


async def take_sample(connection: Any, pids: Mapping[str, int], seconds: float) -> Sample:
    """Everything now; `pids` are the worker processes by name."""
    tables = await connection.fetch(TABLES)
    return Sample(
        seconds=seconds,
        memory={name: resident_bytes(pid) for name, pid in pids.items()},
        descriptors={name: len(os.listdir(f"/proc/{pid}/fd")) for name, pid in pids.items()},
        connections=await connection.fetchval(CONNECTIONS),
        sizes={row["relname"]: row["size"] for row in tables},
        dead_rows={row["relname"]: row["n_dead_tup"] for row in tables},
        waiting=await connection.fetchval(WAITING),
    )


def resident_bytes(pid: int) -> int:
    """The memory of a process that is really there."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
