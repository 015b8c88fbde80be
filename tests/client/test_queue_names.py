"""`queue_name=` of a task as a function of the payload."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from graphile_worker import CronItem, JobHelpers, JobSpec, parse_cron_items, task
from graphile_worker.client import WorkerUtils
from graphile_worker.cron.due import cron_job
from graphile_worker.errors import InvalidArgumentError, InvalidPayloadError, TaskLoadError
from support.cases import looped

QUEUE_OF_JOB = """
    select queue_name from graphile_worker._private_jobs
    left join graphile_worker._private_job_queues on _private_job_queues.id = job_queue_id
    where _private_jobs.id = $1
"""


@dataclass
class Sync:
    tenant: int
    is_urgent: bool = False


@task(queue_name=lambda payload: None if payload.is_urgent else f"tenant:{payload.tenant}")
async def sync(payload: Sync) -> None:
    pass


async def test_the_function_gets_the_payload_as_the_task_does(utils: WorkerUtils, connection: Any) -> None:
    added = [
        await utils.add_job(sync, Sync(7)),
        await utils.add_job(sync, {"tenant": 8}),  # type: ignore[call-overload]
        await utils.add_job(sync, Sync(9, is_urgent=True)),
        await utils.add_job(sync, Sync(7), queue_name="chosen"),
        *await utils.add_jobs([sync.spec(Sync(7)), JobSpec(sync, Sync(10)), JobSpec("sync", {"tenant": 1})]),
    ]
    names = [await connection.fetchval(QUEUE_OF_JOB, job.id) for job in added]
    assert names == ["tenant:7", "tenant:8", None, "chosen", "tenant:7", "tenant:10", None]


@looped(
    ("function", "problem"),
    [
        (lambda payload: payload.nothing, "failed: AttributeError: 'Sync' object has no attribute 'nothing'"),
        (lambda payload: payload.tenant, "returned: expected text, got 7"),
        (lambda payload: "", "returned: must not be empty"),
        (lambda payload: "tenant [2]", "reserved for tracks of queues"),
    ],
)
def test_a_function_that_fails_names_its_task(function: Any, problem: str) -> None:
    @task("sync", queue_name=function)
    async def broken(payload: Sync) -> None:
        pass

    with pytest.raises(InvalidArgumentError, match=r"queue_name: .* task 'sync'") as raised:
        broken.spec(Sync(7))
    assert problem in str(raised.value)


def test_a_payload_that_does_not_fit_is_refused_before() -> None:
    with pytest.raises(InvalidPayloadError, match="tenant"):
        sync.spec({"tenant": "seven"})  # type: ignore[arg-type]


def test_an_async_function_is_refused() -> None:
    async def name(payload: Any) -> str:
        return "x"

    with pytest.raises(TaskLoadError, match="must not be async"):
        task(queue_name=name)(any_task)  # type: ignore[arg-type]


async def any_task(payload: Any) -> None:
    pass


def test_a_task_without_payload_gives_the_function_plain_json() -> None:
    @task(queue_name=lambda payload: f"tenant:{payload['tenant']}")
    async def with_helpers(helpers: JobHelpers) -> None:
        pass

    spec: Any = JobSpec
    assert spec(with_helpers, {"tenant": 3}).queue_name == "tenant:3"


def test_a_task_under_another_name_keeps_its_function() -> None:
    assert sync.with_identifier("other").spec(Sync(5)).queue_name == "tenant:5"


@pytest.mark.parametrize("name", ["tenant [2]", "tenant [17]", "a [2] [3]"])
def test_names_of_tracks_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="reserved for tracks of queues"):
        JobSpec("any", queue_name=name)


@looped("name", ["tenant[2]", "[2]", "tenant []", "tenant [x]", "tenant [02]", "x]"])
def test_other_names_with_brackets_are_allowed(name: str) -> None:
    assert JobSpec("any", queue_name=name).queue_name == name


@task(queue_name=lambda payload: f"tenant:{payload['tenant']}")
async def nightly(payload: dict[str, Any]) -> None:
    pass


def test_recurring_jobs_use_the_function() -> None:
    items: list[CronItem] = [
        CronItem(match="* * * * *", task="nightly", payload={"tenant": 3}),
    ]
    [item] = parse_cron_items(items)
    job = cron_job(item, datetime(2030, 1, 1, tzinfo=UTC), backfilled=False, task=nightly)
    assert job.queue_name == "tenant:3"
