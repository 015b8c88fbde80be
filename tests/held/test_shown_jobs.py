"""What can be known of held jobs: they look ready, and workers report that they run them."""

from __future__ import annotations

import asyncio
from typing import Any

from graphile_worker import WorkerUtils
from graphile_worker.cli.commands.stats import HELD
from graphile_worker.diagnostics.explanation.decision import explain
from support.command_line import COMMAND, clean_environment
from support.holding import HoldingWorker
from support.working import Jobs, until


async def run_command(database_url: str, *arguments: object) -> tuple[str, str]:
    """The command as a separate process: its output and what it said beside it."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *map(str, arguments),
        env=clean_environment(DATABASE_URL=database_url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode(), err.decode()


async def test_held_jobs_look_ready_and_their_worker_reports_them(
    holding: HoldingWorker, utils: WorkerUtils, jobs: Jobs, database_url: str
) -> None:
    await holding.start(hold=300.0)
    ids = await holding.hold()

    async def are_reported() -> bool:
        (worker,) = await utils.list_workers()
        return {job.id for job in worker.running or ()} == set(ids) and worker.jobs_held == len(ids)

    await until(are_reported)
    assert (await utils.statistics.jobs()).jobs.running == 0
    job: Any = await utils.jobs.get(ids[0])
    assert job.state == "ready"
    explanation = await explain(jobs.connection, utils.schema, job)
    assert (explanation.kind, explanation.worker) == ("held", holding.runner.pool_id)
    shown, _ = await run_command(database_url, "show", ids[0])
    assert "runs it, and holds it in an open transaction." in shown
    shown, said = await run_command(database_url, "stats")
    assert HELD.format("3 jobs") in shown + said
    assert await holding.held(ids) == ids
    await holding.let_end()
    await jobs.until_gone()

    async def are_forgotten() -> bool:
        (worker,) = await utils.list_workers()
        return worker.jobs_held == 0

    await until(are_forgotten)
    shown, said = await run_command(database_url, "stats")
    assert "By their last reports" not in shown + said
