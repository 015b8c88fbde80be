"""Jobs that ended beside a poison job are not charged with the death of their worker."""

from __future__ import annotations

from pathlib import Path

from recovery.test_poison import MAX_RECOVERIES, Supervisor
from support.worker_process import Start, recorded
from support.working import SCHEMA, Jobs


class Beside(Supervisor):
    """With several slots, and without urgent jobs."""

    async def add_urgent(self) -> None:
        pass


async def test_jobs_that_started_together_with_it_are_not_failed(
    start: Start, database_url: str, jobs: Jobs, folder: Path
) -> None:
    rows = await jobs.connection.fetch(
        f"select job.id from generate_series(1, 11) n, "
        f"{SCHEMA}.add_job(case n when 6 then 'poison' else 'short' end) job"
    )
    ids = [row["id"] for row in rows]
    deadly = ids.pop(5)
    supervisor = Beside(lambda *flags, **more: start("-j", 10, *flags, **more), database_url, jobs, 1)
    await supervisor.until_given_up([deadly])
    await supervisor.until_left([deadly])
    assert set(recorded(folder)) == set(ids)
    assert f"died {MAX_RECOVERIES + 1} times" in (await jobs.one())["last_error"]
