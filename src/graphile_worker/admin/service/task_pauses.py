"""Pausing and resuming tasks, with a row in the audit."""

from __future__ import annotations

from datetime import datetime, timedelta

from ...history import audit
from ...history.audit import Actor
from ...values.job import Pause
from ..database import Database


async def pause(
    database: Database, actor: Actor, name: str, until: datetime | timedelta | None, reason: str
) -> Pause:
    """Start no more jobs of a task in Python workers; of every task if the name is empty."""
    async with database.write() as connection:
        if name:
            found = await database.utils.pause(
                task=name, until=until, reason=reason or None, connection=connection
            )
        else:
            found = await database.utils.pause(
                all=True, until=until, reason=reason or None, connection=connection
            )
        await audit.record(
            connection, database.schema, actor, "pause_task", target=found.what,
            details={"until": found.until, "reason": reason},
        )  # fmt: skip
    return found


async def resume(database: Database, actor: Actor, name: str) -> bool:
    """End the pause of a task, or of every task; returns whether there was one."""
    async with database.write() as connection:
        if name:
            was_paused = await database.utils.resume(task=name, connection=connection)
        else:
            was_paused = await database.utils.resume(all=True, connection=connection)
        if was_paused:
            what = f"task {name}" if name else "every task"
            await audit.record(connection, database.schema, actor, "resume_task", target=what)
    return was_paused
