"""Inspecting jobs and queues."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from graphile_worker.client import WorkerUtils
from graphile_worker.database.statements import inspection as inspect
from graphile_worker.database.statements.inspection import JobCounts, JobFilter
from graphile_worker.errors import InvalidArgumentError
from graphile_worker.values.job import Job
from graphile_worker.values.spec import JobSpec
from support.cases import looped


@pytest.fixture
async def states(utils: WorkerUtils, connection: Any) -> dict[str, int]:
    """One job in each state, by state."""
    ready = await utils.add_job("a", 1, queue_name="q", job_key="ready", run_at=timedelta(minutes=-5))
    scheduled = await utils.add_job("a", 2, queue_name="q", run_at=timedelta(hours=1), priority=-1)
    locked = await utils.add_job("b", 3)
    failed = await utils.add_job("b", 4, queue_name="p")
    await utils.permanently_fail_jobs([failed.id], "enough")
    await connection.execute(
        "update graphile_worker._private_jobs set locked_at = now(), locked_by = 'pool-1' where id = $1",
        locked.id,
    )
    return {"ready": ready.id, "scheduled": scheduled.id, "running": locked.id, "failed": failed.id}


async def ids(utils: WorkerUtils, **conditions: Any) -> list[int]:
    return [job.id for job in await utils.jobs.list(JobFilter(**conditions))]


async def test_get_job_returns_queue_state_and_payload(utils: WorkerUtils, states: dict[str, int]) -> None:
    for state, job_id in states.items():
        details = await utils.jobs.get(job_id)
        assert details is not None
        assert details.state == state
    details = await utils.jobs.get(states["failed"])
    assert details is not None
    assert isinstance(details, Job)
    assert (details.id, details.queue_name) == (states["failed"], "p")
    assert "state='failed'" in repr(details)
    values = details.to_dict()
    assert (values["queue_name"], values["payload"], values["last_error"]) == ("p", 4, "enough")
    assert values["task_identifier"] == "b"


async def test_list_jobs_filters_by_state_task_queue_key_and_holder(
    utils: WorkerUtils, states: dict[str, int]
) -> None:
    for state, job_id in states.items():
        assert await ids(utils, state=state) == [job_id]
    assert await ids(utils, task_identifier="a") == [states["ready"], states["scheduled"]]
    assert await ids(utils, queue_name="q") == [states["ready"], states["scheduled"]]
    assert await ids(utils, queue_name="q", state="ready") == [states["ready"]]
    assert await ids(utils, job_key="ready") == [states["ready"]]
    assert await ids(utils, locked_by="pool-1") == [states["running"]]
    assert await ids(utils, task_identifier="unknown") == []
    assert await ids(utils) == list(states.values())


async def test_list_jobs_filters_by_flag_error_and_times(utils: WorkerUtils, connection: Any) -> None:
    flagged = await utils.add_job("a", flags=["slow", "big"])
    failed = await utils.add_job("a")
    await utils.permanently_fail_jobs([failed.id], "TimeoutError: no answer from 50%_x")
    await connection.execute(
        "update graphile_worker._private_jobs set created_at = created_at - interval '1 day' where id = $1",
        flagged.id,
    )
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    assert await ids(utils, flag="slow") == await ids(utils, flag="big") == [flagged.id]
    assert await ids(utils, flag="bi") == []
    assert await ids(utils, error="timeouterror") == await ids(utils, error="50%_X") == [failed.id]
    assert await ids(utils, error="%") == [failed.id]
    assert await ids(utils, error="no reply") == []
    assert await ids(utils, created_since=hour_ago) == [failed.id]
    assert await ids(utils, created_until=hour_ago) == [flagged.id]
    assert await ids(utils, failed_since=hour_ago) == [failed.id]
    assert await ids(utils, failed_until=hour_ago) == []


async def test_list_jobs_filters_by_ranges_and_beginnings(utils: WorkerUtils, connection: Any) -> None:
    first = await utils.add_job("send_email", job_key="mail:1", priority=-5)
    second = await utils.add_job("resize", job_key="image:1", run_at=datetime(2040, 1, 1, tzinfo=UTC))
    third = await utils.add_job("resize", priority=7)
    await connection.execute(
        "update graphile_worker._private_jobs set attempts = 3, last_error = 'MAIL is down' where id = $1",
        third.id,
    )
    assert await ids(utils, id_from=second.id) == [second.id, third.id]
    assert await ids(utils, id_from=second.id, id_to=second.id) == [second.id]
    assert await ids(utils, priority_to=-1) == [first.id]
    assert await ids(utils, priority_from=1, priority_to=7) == [third.id]
    assert await ids(utils, attempts_from=1) == [third.id]
    assert await ids(utils, attempts_to=2) == [first.id, second.id]
    assert await ids(utils, run_since=datetime(2039, 1, 1, tzinfo=UTC)) == [second.id]
    assert await ids(utils, run_until=datetime(2039, 1, 1, tzinfo=UTC)) == [first.id, third.id]
    assert await ids(utils, key_prefix="mail:") == [first.id]
    assert await ids(utils, key_prefix="%") == []
    assert await ids(utils, text="mail") == [first.id, third.id]
    assert await ids(utils, text="IMAGE") == [second.id]
    assert await ids(utils, order="newest", id_to=second.id) == [second.id, first.id]
    assert await ids(utils, order="run_order", id_from=first.id, priority_to=0) == [first.id, second.id]


async def test_list_jobs_filters_by_members_of_the_payload(utils: WorkerUtils, connection: Any) -> None:
    nested = await utils.add_job("a", {"user": {"id": 42}, "ok": True, "dotted.name": 1})
    text = await utils.add_job("a", {"user": {"id": "42"}, "items": [{"sku": "x"}]})
    await utils.add_job("a", "42")
    for unreadable in (r'{"user": {"id": 42}, "x": "\u0000"}', r'{"user": {"id": 42}, "x": "\ud83d"}'):
        await connection.execute("select graphile_worker.add_job('a', $1::text::json)", unreadable)
    smiling = r'{"smile": "\ud83d\ude00", "user": {"id": 7}}'
    await connection.execute("select graphile_worker.add_job('a', $1::text::json)", smiling)
    assert await ids(utils, payload={"user.id": 42}) == [nested.id, text.id]
    assert await ids(utils, payload={"user.id": "42", "ok": True}) == [nested.id]
    assert await ids(utils, payload={"items.0.sku": "x"}) == [text.id]
    assert await ids(utils, payload={"user.id": "4"}) == []
    assert len(await ids(utils, payload={"user.id": 7})) == 1
    report = await utils.complete_jobs(filter=JobFilter(payload={"user.id": 42}, id_to=nested.id))
    assert (report.changed, report.up_to) == (1, nested.id)
    assert await ids(utils, payload={"user.id": 42}) == [text.id]


async def test_a_failed_job_says_when_it_failed(utils: WorkerUtils, workers: Any, jobs: Any) -> None:
    """Whether a worker failed it, or a person."""

    async def fail() -> None:
        raise ValueError("no")

    before = datetime.now(UTC)
    by_worker = await utils.add_job("fail", max_attempts=1, run_at=before - timedelta(hours=3))
    by_hand = await utils.add_job("other", run_at=before + timedelta(hours=3))
    await utils.permanently_fail_jobs([by_hand.id])
    waiting = await utils.add_job("other", run_at=before + timedelta(hours=3))
    await workers.once({"fail": fail})
    margin = timedelta(milliseconds=1)
    for job in (by_worker, by_hand):
        details = await utils.jobs.get(job.id)
        assert details is not None
        assert details.failed_at is not None
        assert before - margin <= details.failed_at <= datetime.now(UTC) + margin
        assert details.to_dict()["failed_at"] == details.failed_at
    details = await utils.jobs.get(waiting.id)
    assert details is not None
    assert details.failed_at is None
    assert await ids(utils, failed_since=before - margin) == [by_worker.id, by_hand.id]
    assert await ids(utils, failed_until=before - margin) == []


async def test_a_page_has_a_default_and_a_largest_size(utils: WorkerUtils) -> None:
    await utils.add_jobs([JobSpec("a", number) for number in range(60)])
    assert len(await utils.jobs.list()) == 50
    with pytest.raises(InvalidArgumentError, match="limit: must be from 1 to 100000, got 100001"):
        await utils.jobs.list(JobFilter(limit=100_001))


async def test_list_jobs_pages_in_every_order(utils: WorkerUtils) -> None:
    await utils.add_jobs([JobSpec("a", number, priority=number % 3) for number in range(10)])
    in_run_order = sorted(range(10), key=lambda number: (number % 3, number))
    orders: list[tuple[Any, list[int]]] = [
        ("oldest", list(range(10))),
        ("newest", list(range(9, -1, -1))),
        ("run_order", in_run_order),
    ]
    for order, expected in orders:
        seen: list[int] = []
        after = None
        while page := await utils.jobs.list(JobFilter(order=order, limit=4, after=after)):
            seen += [job.payload for job in page]
            after = page[-1]
        assert seen == expected


async def test_run_order_lists_only_jobs_that_wait(utils: WorkerUtils, states: dict[str, int]) -> None:
    assert await ids(utils, order="run_order") == [states["scheduled"], states["ready"]]
    assert await ids(utils, order="run_order", state="ready") == [states["ready"]]


async def test_a_job_whose_task_name_is_gone_is_still_shown(utils: WorkerUtils, connection: Any) -> None:
    job = await utils.add_job("a")
    await connection.execute("delete from graphile_worker._private_tasks")
    assert await ids(utils) == [job.id]
    assert (await utils.statistics.jobs()).tasks == {"": JobCounts(ready=1)}
    [completed] = await utils.complete_jobs([job.id])
    assert completed.task_identifier == ""


async def test_statistics_count_by_state_and_task(
    utils: WorkerUtils, states: dict[str, int], connection: Any
) -> None:
    await connection.execute(
        "update graphile_worker._private_job_queues set locked_at = now(), locked_by = 'pool' "
        "where queue_name = 'p'"
    )
    statistics = await utils.statistics.jobs()
    assert statistics.jobs == JobCounts(ready=1, scheduled=1, running=1, failed=1)
    assert statistics.jobs.total == 4
    assert statistics.tasks == {"a": JobCounts(ready=1, scheduled=1), "b": JobCounts(running=1, failed=1)}
    assert statistics.is_estimate is False
    assert (statistics.queues, statistics.locked_queues) == (2, 1)
    assert statistics.oldest_ready_at is not None
    waiting = datetime.now(UTC) - statistics.oldest_ready_at
    assert timedelta(minutes=5) <= waiting < timedelta(minutes=6)


async def test_statistics_of_an_empty_queue(utils: WorkerUtils) -> None:
    statistics = await utils.statistics.jobs()
    assert statistics.jobs == JobCounts()
    assert statistics.oldest_ready_at is None
    assert await utils.queues.list() == []


async def test_a_large_table_is_estimated_and_says_so(
    utils: WorkerUtils, monkeypatch: pytest.MonkeyPatch
) -> None:
    await utils.add_jobs(
        [JobSpec(f"task_{number % 2}", number, queue_name=f"q{number % 4}") for number in range(8000)]
    )
    monkeypatch.setattr(inspect, "COUNTED_PAGES", 20)
    monkeypatch.setattr(inspect, "SAMPLED_PAGES", 70)

    estimate = await utils.statistics.jobs()
    assert estimate.is_estimate
    assert 3200 < estimate.jobs.ready < 12800
    assert set(estimate.tasks) == {"task_0", "task_1"}
    queues = await utils.queues.list(limit=3)
    assert len(queues) == 3
    assert all(queue.is_estimate and 800 < queue.jobs < 3200 for queue in queues)

    exact = await utils.statistics.jobs(exact=True)
    assert not exact.is_estimate
    assert exact.jobs == JobCounts(ready=8000)
    assert [queue.jobs for queue in await utils.queues.list(exact=True)] == [2000] * 4


async def test_list_queues_returns_size_and_holder(
    utils: WorkerUtils, states: dict[str, int], connection: Any
) -> None:
    await connection.execute(
        "update graphile_worker._private_job_queues set locked_at = now(), locked_by = 'pool-9' "
        "where queue_name = 'q'"
    )
    queues = await utils.queues.list()
    assert [(queue.queue_name, queue.jobs, queue.ready, queue.locked_by) for queue in queues] == [
        ("q", 2, 1, "pool-9"),
        ("p", 1, 0, None),
    ]
    assert queues[0].locked_at is not None


@looped(
    ("conditions", "message"),
    [
        ({"state": "done"}, "state: expected one of ready, scheduled, retrying, running, failed; got 'done'"),
        ({"order": "random"}, "order: expected one of oldest, newest, run_order; got 'random'"),
        ({"limit": 0}, "limit: must be 1 or more, got 0"),
        ({"limit": "5"}, "limit: expected a whole number, got '5'"),
        ({"flag": 5}, "flag: expected text, got 5"),
        ({"error": "a\0b"}, "error: contains a NUL byte"),
        ({"created_since": 5}, "created_since: expected a datetime with a time zone, got 5"),
        ({"failed_until": datetime(2020, 1, 1)}, "failed_until: .* has no time zone"),
        (
            {"state": "ready", "failed_since": datetime(2020, 1, 1, tzinfo=UTC)},
            "state: expected one of failed with failed_since or failed_until; got 'ready'",
        ),
        ({"order": "run_order", "state": "failed"}, "state: expected one of ready, scheduled with the order"),
        ({"order": "run_order", "after": 5}, "after: expected the Job itself"),
        ({"id_from": "5"}, "id_from: expected a whole number, got '5'"),
        ({"priority_to": 40_000}, "priority_to: must be from -32768 to 32767, got 40000"),
        ({"run_since": datetime(2020, 1, 1)}, "run_since: .* has no time zone"),
        ({"payload": {}}, "payload: expected values by their paths"),
        ({"payload": {"a": None}}, "payload: expected a path and a text, number or boolean"),
    ],
)
def test_filters_that_make_no_sense_are_refused(conditions: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        JobFilter(**conditions)
