"""The doctor and pauses: it says what is paused, and does not look for other reasons why jobs wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from graphile_worker import WorkerUtils, make_worker_utils
from graphile_worker.config import resolve_settings
from graphile_worker.diagnostics.examine import examine
from graphile_worker.diagnostics.finding import Finding
from graphile_worker.diagnostics.waiting_checks import check_pauses
from graphile_worker.values.job import Pause
from support.working import SCHEMA, Jobs

OLD = "now() - interval '8 minutes'"


async def findings(url: str, *checks: str) -> list[Finding]:
    found = await examine(resolve_settings({"connection_string": url}, {}))
    return [finding for finding in found if finding.check in checks]


async def pause_all_three(utils: WorkerUtils) -> None:
    await utils.pause(task="paused", reason="deploy")
    await utils.queues.pause("q")


async def test_jobs_of_paused_tasks_and_queues_wait_on_purpose(jobs: Jobs, database_url: str) -> None:
    await jobs.add("paused")
    await jobs.add("queued", queue="q")
    await jobs.add("other")
    await jobs.connection.execute(f"update {SCHEMA}._private_jobs set run_at = {OLD}, created_at = {OLD}")
    async with make_worker_utils(connection_string=database_url) as utils:
        await pause_all_three(utils)
        found = await findings(database_url, "waiting")
        assert {(finding.severity, finding.summary) for finding in found} == {
            ("info", "the task is paused; waiting: paused (1 job, 8 min)"),
            ("info", "the queue is paused; waiting: queued (1 job, 8 min)"),
            ("warning", "no worker is running; waiting: other (1 job, 8 min)"),
        }
        assert any("The task paused is paused (deploy)." in finding.meaning for finding in found)
        (pauses,) = await findings(database_url, "pauses")
        assert (pauses.severity, pauses.summary) == ("info", "paused: task paused (deploy), queue q")
        (queues,) = await findings(database_url, "queues")
        assert queues.severity == "ok"
        await utils.pause(all=True)
        (everything,) = await findings(database_url, "waiting")
        assert "other (1 job, 8 min)" in everything.summary


async def test_without_pauses_all_is_well(database_url: str) -> None:
    (found,) = await findings(database_url, "pauses")
    assert (found.severity, found.summary) == ("ok", "nothing is paused")


def test_a_queue_that_no_worker_resumed_in_time_is_reported() -> None:
    late = Pause(queue_name="a queue", until=datetime.now(UTC) - timedelta(hours=1))
    warning, info = check_pauses([late, Pause()])
    assert warning.severity == "warning"
    assert warning.summary == "queues are still paused although their time is over: a queue"
    assert "graphile-worker resume --queue 'a queue'" in warning.advice
    assert info.summary == "paused: every task"
