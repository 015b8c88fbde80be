"""Pausing and resuming one thing: a named queue, a task, or every task."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..database.connections.connection import UserConnection
from ..database.statements import pauses
from ..errors import InvalidArgumentError
from ..values.spec import TaskLike
from .connections import ClientConnections

if TYPE_CHECKING:
    from ..values.job import Pause


async def pause(
    connections: ClientConnections,
    connection: UserConnection | None,
    *,
    queue_name: str | None = None,
    task: str | TaskLike[Any, Any] | None = None,
    all: bool = False,
    until: datetime | timedelta | None,
    reason: str | None,
) -> Pause:
    """Start no more jobs of one of them."""
    schema = connections.schema
    if queue_name is None or task is not None or all:
        name = _task_name(queue_name, task, all)
        return await connections.manage(
            connection, lambda session: pauses.pause_task(session, schema, name, until, reason)
        )
    return await connections.manage(
        connection, lambda session: pauses.pause_queue(session, schema, queue_name, until, reason)
    )


async def resume(
    connections: ClientConnections,
    connection: UserConnection | None,
    *,
    queue_name: str | None = None,
    task: str | TaskLike[Any, Any] | None = None,
    all: bool = False,
) -> bool:
    """End the pause of one of them; returns whether it was paused."""
    schema = connections.schema
    if queue_name is None or task is not None or all:
        name = _task_name(queue_name, task, all)
        return await connections.manage(connection, lambda session: pauses.resume_task(session, schema, name))
    return await connections.manage(
        connection, lambda session: pauses.resume_queue(session, schema, queue_name)
    )


def _task_name(queue_name: str | None, task: str | TaskLike[Any, Any] | None, all: bool) -> str:
    """The name under which the pause of a task, or of all, is stored."""
    values = {"queue_name": queue_name is not None, "task": task is not None, "all": all}
    given = [name for name, is_given in values.items() if is_given]
    if len(given) != 1:
        got = "none of them" if not given else " and ".join(given)
        raise InvalidArgumentError(
            given[-1] if given else "queue_name", f"give one of queue_name, task and all=True; got {got}"
        )
    if task is None:
        return pauses.EVERY_TASK
    identifier = task if isinstance(task, str) else task.identifier
    if not identifier:
        raise InvalidArgumentError("task", "must not be empty; for every task, give all=True")
    return identifier
