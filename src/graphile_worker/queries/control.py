"""What operators ask of running workers, and how workers read it. `pauses` has what operators do."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from ..db.connection import Connection, Row
from ..pauses import Pause
from ..schema_name import SchemaName
from ..sql import load
from .pauses import EVERY_TASK as EVERY_TASK
from .pauses import is_of_track, pause_from

STOPPED = "an operator stopped it"


class ControlState(msgspec.Struct, frozen=True):
    """What operators ask of one pool."""

    pauses: frozenset[Pause] = frozenset()
    """Tasks and queues that are paused."""
    paused_queues: frozenset[int] = frozenset()
    """The ids of the queues that are paused."""
    has_ended_pauses: bool = False
    """Whether a queue is locked although its pause is over; see `end_due_pauses`."""
    changes_in: float | None = None
    """Seconds until the first pause ends; None if none has an end."""
    has_wide_queues: bool = False
    """Whether there are queues that may run several jobs at once."""
    cancelled: Mapping[int, str | None] = msgspec.field(default_factory=dict[int, str | None])
    """Ids of jobs of this pool that were cancelled, and the reasons."""
    has_leftover_cancels: bool = False
    """Whether there are cancelled jobs that no worker will end by itself; see `leftover_cancels`."""
    stop: str | None = None
    """Why the pool is to shut down; None if it is not."""
    is_quiet: bool = False
    """Whether the pool is to fetch no more jobs."""
    stacks: Mapping[int, int] = msgspec.field(default_factory=dict[int, int])
    """Ids of requests for the stack of a job, and the ids of the jobs."""

    @property
    def paused(self) -> frozenset[str]:
        """Identifiers of paused tasks; `EVERY_TASK` among them if all are, or if this pool is quiet."""
        tasks = frozenset(
            pause.task_identifier or EVERY_TASK for pause in self.pauses if pause.queue_name is None
        )
        return tasks | {EVERY_TASK} if self.is_quiet else tasks


async def read_control_state(
    connection: Connection, schema: SchemaName, pool_id: str, *, has_requests: bool = True
) -> ControlState:
    """What operators ask of this pool now; `has_requests`: whether it can read requests to single pools."""
    statement = "control/look" if has_requests else "control/look@unasked"
    rows = await connection.fetch(load(statement, schema), pool_id)
    if not rows:
        return NOTHING_ASKED
    queues = [row for row in rows if row["kind"] == "queue"]
    over = [row for row in queues if row["name"] is None or _is_over(row)]
    paused = [row for row in rows if row["kind"] in ("task", "queue") and row not in over]
    return ControlState(
        pauses=frozenset(pause_from(row) for row in paused if not is_of_track(row)),
        paused_queues=frozenset(row["id"] for row in queues),
        has_ended_pauses=bool(over) or any(row["kind"] == "ending" for row in rows),
        changes_in=min((row["seconds"] for row in paused if row["seconds"] is not None), default=None),
        has_wide_queues=any(row["kind"] == "wide" for row in rows),
        cancelled={row["id"]: row["reason"] for row in rows if row["kind"] == "cancel"},
        has_leftover_cancels=any(row["kind"] == "leftover" for row in rows),
        stop=next((row["reason"] or STOPPED for row in rows if row["kind"] == "stop"), None),
        is_quiet=any(row["kind"] == "quiet" for row in rows),
        stacks={row["id"]: int(row["name"]) for row in rows if row["kind"] == "stack"},
    )


async def paused_jobs(
    connection: Connection,
    schema: SchemaName,
    *,
    tasks: Sequence[str],
    paused: Collection[str],
    now: datetime | None,
) -> list[tuple[Pause, int]]:
    """How many ready jobs of these tasks wait in each paused queue, and for each paused task."""
    rows = await connection.fetch(load("control/left_jobs", schema), list(tasks), list(paused), now)
    return [
        (Pause(task_identifier=row["task_identifier"], queue_name=row["queue_name"]), row["jobs"])
        for row in rows
    ]


def _is_over(row: Row) -> bool:
    return row["seconds"] is not None and bool(row["seconds"] <= 0)


NOTHING_ASKED = ControlState()
