"""Cancelling a job that a Node worker runs: it finishes, and is not retried by any runtime."""

from __future__ import annotations

from typing import Any

import pytest

from graphile_worker import make_worker_utils, run
from graphile_worker.errors import JobCancelledError
from interop.conftest import SharedDatabase
from interop.python_tasks import record
from support.working import PATIENCE

pytestmark = pytest.mark.interop

LONG = 5_000  # milliseconds, in which the cancel must arrive
STARTED = "count(*) = 1 FROM public.interop_runs"
NOT_LOCKED = "NOT EXISTS (SELECT FROM {jobs} WHERE locked_at IS NOT NULL)"
SETTLED = "NOT EXISTS (SELECT FROM {jobs}) AND NOT EXISTS (SELECT FROM graphile_worker._private_py_cancels)"


def python_worker(database: SharedDatabase) -> Any:
    return run(connection_string=database.url, task_list={"echo": record}, handle_signals=False)


@pytest.mark.parametrize("ending", ["completes", "fails"])
async def test_a_job_that_node_runs_finishes_and_is_not_retried(
    our_database: SharedDatabase, ending: str
) -> None:
    payload: dict[str, Any] = {"pause": LONG} | ({"fail": "boom"} if ending == "fails" else {})
    runs = our_database.runs
    async with make_worker_utils(connection_string=our_database.url) as utils:
        async with our_database.node.worker("echo", pollInterval=50):
            handle = await utils.add_job("echo", payload, keep=True, job_key="k", queue_name="q")
            await runs.wait_until(STARTED)
            report = await utils.jobs.cancel(job_key="k", reason="not needed")
            assert [job.id for job in report.asked] == [handle.id]
            await runs.wait_until(NOT_LOCKED)
            left = await utils.jobs.list()
            assert [job.state for job in left] == (["failed"] if ending == "fails" else [])
        if ending == "fails":
            with pytest.raises(JobCancelledError, match="not needed"):
                await handle.result(timeout=PATIENCE)
        async with python_worker(our_database):
            await runs.wait_until(SETTLED)
        (only,) = await runs.all()
        assert (only.worker, only.attempt) == ("node", 1)
        assert only.ended is not None
        states = [end.state for end in await utils.history.of_job(handle)]
        assert states == (["cancelled"] if ending == "fails" else [])


async def test_in_a_schema_of_node_running_jobs_are_left_alone(node_database: SharedDatabase) -> None:
    async with (
        make_worker_utils(connection_string=node_database.url) as utils,
        node_database.node.worker("echo", pollInterval=50),
    ):
        running = await utils.add_job("echo", {"pause": LONG}, job_key="k")
        await node_database.runs.wait_until(STARTED)
        report = await utils.cancel_jobs([running.id])
        assert [job.id for job in report.running] == [running.id]
        assert (report.problem or "").startswith("the schema has no table of cancelled jobs")
        assert (await utils.jobs.list())[0].key == "k"
