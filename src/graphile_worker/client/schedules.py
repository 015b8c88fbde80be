"""Running a recurring job now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ..db.connection import UserConnection
from ..errors import InvalidArgumentError
from ..job import Job
from ..queries.schedules import list_schedules, manual_job, note_run

if TYPE_CHECKING:
    from .worker_utils import WorkerUtils


async def run_now(
    utils: WorkerUtils, identifier: str, now: datetime, connection: UserConnection | None
) -> Job:
    """Add the job of a recurring job, and note the run."""
    async with utils._connection(connection) as session:
        found = await list_schedules(session, utils.schema, identifier=identifier)
    if not found:
        raise InvalidArgumentError("identifier", f"there is no recurring job {identifier!r}")
    job = await utils.add_job(manual_job(found[0], now.astimezone(UTC)), connection=connection)
    async with utils._connection(connection) as session:
        await note_run(session, utils.schema, identifier, job.id)
    return job
