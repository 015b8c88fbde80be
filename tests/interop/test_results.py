"""A job that Node's worker completed leaves no end: those who wait are told so, and do not wait on."""

from __future__ import annotations

import pytest

from graphile_worker import make_worker_utils
from graphile_worker.errors import JobCancelledError, JobGoneError
from interop.conftest import SharedDatabase
from support.working import PATIENCE

pytestmark = pytest.mark.interop


async def test_waiting_for_a_job_that_node_completes(either_database: SharedDatabase) -> None:
    async with (
        make_worker_utils(connection_string=either_database.url) as utils,
        either_database.node.worker("echo", pollInterval=50),
    ):
        handle = await utils.add_job("echo", {"n": 1}, keep=True)
        with pytest.raises(JobGoneError, match=r"Workers of other runtimes keep no finished jobs"):
            await handle.result(timeout=PATIENCE)
        assert (await handle.status()).state == "gone"
        assert not (await utils.jobs.get_record(handle)).is_known


async def test_cancelling_where_there_may_be_no_history(either_database: SharedDatabase) -> None:
    async with make_worker_utils(connection_string=either_database.url) as utils:
        handle = await utils.add_job("echo", {"n": 1}, keep=True)
        assert await handle.cancel("not needed") is True
        with pytest.raises((JobCancelledError, JobGoneError)):
            await handle.result(timeout=PATIENCE)
