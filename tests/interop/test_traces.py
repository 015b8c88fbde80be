"""Jobs that carry the context of a trace, in workers of Node.js and in ours."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider

from graphile_worker import make_worker_utils, run_once
from graphile_worker.contrib.opentelemetry import OpenTelemetryPlugin
from interop.conftest import SharedDatabase
from support.working import Jobs

pytestmark = pytest.mark.interop


async def test_node_runs_a_job_with_a_trace_and_so_do_we_if_node_added_it(
    either_database: SharedDatabase,
) -> None:
    jobs = Jobs(either_database.connection)
    plugin = OpenTelemetryPlugin(tracer_provider=TracerProvider())
    async with (
        make_worker_utils(connection_string=either_database.url, plugins=[plugin]) as utils,
        either_database.node.worker("echo", pollInterval=50),
    ):
        added = await utils.add_job("echo", {"n": 1})
        await jobs.until_gone()
    (ran,) = await either_database.runs.all()
    assert ran.payload == added.payload
    assert set(ran.payload) == {"_trace", "n"}

    seen: list[object] = []

    async def ours(payload: object) -> None:
        seen.append(payload)

    await either_database.node.call(["addJob", "ours", ran.payload, {}])
    await run_once(task_list={"ours": ours}, connection_string=either_database.url)
    assert seen == [{"n": 1}]
