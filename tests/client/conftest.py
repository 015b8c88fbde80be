"""A client, and the selection of jobs that the rows about managing jobs begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from client.comparing import as_job
from graphile_worker.client import WorkerUtils, make_worker_utils
from graphile_worker.values.job import Job


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    """A client of the test's own database."""
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


@dataclass(frozen=True)
class Selection:
    failed: Job
    regular_1: Job
    locked: Job
    regular_2: Job
    untouched: Job

    @property
    def four_ids(self) -> list[int]:
        """All but the untouched one."""
        return [self.failed.id, self.regular_1.id, self.locked.id, self.regular_2.id]


@pytest.fixture
async def selection(utils: WorkerUtils, connection: Any) -> Selection:
    """Five jobs an hour ahead: one permanently failed, one locked, three regular ones."""
    run_at = datetime.now(UTC) + timedelta(hours=1)
    jobs = [await utils.add_job("job3", {"a": number}, run_at=run_at) for number in range(1, 6)]
    await connection.execute(
        "update graphile_worker._private_jobs set attempts = max_attempts, last_error = 'Failed forever' "
        "where id = $1",
        jobs[0].id,
    )
    await connection.execute(
        "update graphile_worker._private_jobs set locked_by = 'test', locked_at = now() where id = $1",
        jobs[2].id,
    )
    return Selection(*[as_job(await utils.jobs.get(job.id)) for job in jobs])
