"""How many attempts a permanently failed job had, and what exceptions and the dashboard say about it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import httpx
import pytest

from admin.conftest import client_of
from graphile_worker import GiveUp, WorkerUtils, make_worker_utils, task
from graphile_worker.admin import admin_app, everyone_may
from graphile_worker.errors import JobFailedError
from graphile_worker.options import JobFilter
from graphile_worker.values.text import failed_permanently, how_it_failed
from recovery.dead import QUICK, Graveyard
from support.working import PATIENCE, SCHEMA, Jobs, Workers, until

GAVE_UP = "gave up on attempt 1 of 4"


@task
async def give_up() -> None:
    raise GiveUp("the card is stolen")


@task(dont_retry=ValueError)
async def refuse() -> None:
    raise ValueError("wrong number")


@task(give_up_after=timedelta(seconds=1))
async def late() -> None:
    raise OSError("no route")


@task
async def fail() -> None:
    raise ValueError("no")


TASKS = [give_up, refuse, late, fail]


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


@pytest.fixture
async def http(database_url: str) -> AsyncIterator[httpx.AsyncClient]:
    app = admin_app(connection_string=database_url, authorize=everyone_may)
    async with client_of(app) as client:
        yield client
    await app.aclose()


async def made(utils: WorkerUtils, job_id: int) -> int | None:
    job = await utils.jobs.get(job_id)
    assert job is not None
    assert (job.state, job.attempts) == ("failed", job.max_attempts)
    return job.attempts_made


@pytest.mark.parametrize(
    ("attempts", "of", "words"),
    [
        (None, 4, ""),
        (0, 4, "given up before its first attempt"),
        (1, 4, GAVE_UP),
        (4, 4, "all 4 attempts used"),
        (1, 1, "its only attempt used"),
    ],
)
def test_the_words(attempts: int | None, of: int, words: str) -> None:
    assert how_it_failed(attempts, of) == words
    assert failed_permanently(attempts, of).removeprefix("failed permanently").strip(", ") == words


@pytest.mark.parametrize("name", ["give_up", "refuse", "late"])
async def test_a_job_that_was_given_up_at_once(
    utils: WorkerUtils, workers: Workers, http: httpx.AsyncClient, name: str
) -> None:
    handle = await utils.add_job(name, keep=True, max_attempts=4)
    await workers.once(TASKS)
    assert await made(utils, handle.id) == 1
    assert (await utils.jobs.get_status(handle)).attempts == 1
    assert (await utils.jobs.list(JobFilter(state="failed")))[0].attempts_made == 1
    with pytest.raises(JobFailedError, match=f"job {handle.id} failed permanently, {GAVE_UP}: ") as raised:
        await handle.result(timeout=PATIENCE)
    assert (raised.value.attempts, raised.value.how) == (1, GAVE_UP)
    page = (await http.get(f"/jobs/{handle.id}")).text
    assert "it failed permanently, " in page
    assert page.count(GAVE_UP) == 2, "the explanation and the facts"
    listed = (await http.get("/jobs")).text
    assert GAVE_UP in listed
    for text in (page, listed):
        assert "4 of 4" not in text
        assert "all 4 attempts" not in text
    plain = (await http.get("/jobs", headers={"Accept": "text/plain"})).text
    assert GAVE_UP in plain
    assert (await http.get(f"/api/v1/jobs/{handle.id}")).json()["attempts_made"] == 1


async def test_a_job_that_used_them_all(utils: WorkerUtils, workers: Workers, jobs: Jobs) -> None:
    job_id = await jobs.add("fail", max_attempts=2)
    for _ in range(2):
        await workers.once(TASKS)
        await jobs.make_due()
    assert await made(utils, job_id) == 2
    with pytest.raises(JobFailedError, match="failed permanently, all 2 attempts used: ValueError: no"):
        await utils.wait_for(job_id, timeout=PATIENCE)


async def test_without_a_history_the_error_tells_it(utils: WorkerUtils, workers: Workers, jobs: Jobs) -> None:
    job_id = await jobs.add("give_up", max_attempts=4)
    await workers.once(TASKS, history="none")
    assert not await utils.history.of_job(job_id)
    assert await made(utils, job_id) == 1


async def test_nothing_is_claimed_where_nothing_is_known(
    utils: WorkerUtils, workers: Workers, jobs: Jobs, http: httpx.AsyncClient
) -> None:
    job_id = await jobs.add("give_up", max_attempts=4)
    await workers.once(TASKS, history="none", error_retention=0)
    assert await made(utils, job_id) is None
    page = (await http.get(f"/jobs/{job_id}")).text
    assert "it failed permanently" in page
    assert "attempts used" not in page
    with pytest.raises(JobFailedError, match=f"job {job_id} failed permanently: GiveUp"):
        await utils.wait_for(job_id, timeout=PATIENCE)


async def test_an_earlier_failure_says_nothing_about_a_later_one(
    utils: WorkerUtils, workers: Workers, jobs: Jobs
) -> None:
    job_id = await jobs.add("give_up", max_attempts=4)
    await workers.once(TASKS)
    await utils.reschedule_jobs([job_id], attempts=3, run_at=timedelta())
    await jobs.connection.execute(  # as Node fails it
        f"update {SCHEMA}._private_jobs set attempts = 4, last_error = 'node', "
        "run_at = now() + exp(4) * interval '1 second' where id = $1",
        job_id,
    )
    assert await made(utils, job_id) is None


@pytest.mark.parametrize("is_bulk", [False, True])
async def test_a_job_that_was_failed_by_hand(
    utils: WorkerUtils, workers: Workers, jobs: Jobs, is_bulk: bool
) -> None:
    plain = await jobs.add("fail", max_attempts=4)
    kept = await utils.add_job("fail", keep=True, max_attempts=4)
    await workers.once(TASKS)
    fresh = await utils.add_job("fail", keep=True, max_attempts=4)
    if is_bulk:
        await utils.permanently_fail_jobs(reason="enough", filter=JobFilter(task_identifier="fail"))
    else:
        failed = await utils.permanently_fail_jobs([plain, kept.id, fresh.id], "enough")
        assert [job.attempts for job in failed] == [4, 4, 4], "as the rows are"
    assert await made(utils, plain) == 1
    assert await made(utils, kept.id) == 1
    assert await made(utils, fresh.id) == 0
    with pytest.raises(JobFailedError, match=f"{GAVE_UP}: enough"):
        await kept.result(timeout=PATIENCE)
    with pytest.raises(JobFailedError, match="given up before its first attempt: enough"):
        await fresh.result(timeout=PATIENCE)
    assert [end.attempts for end in await utils.history.of_job(kept)] == [1]


async def test_a_poison_job(utils: WorkerUtils, workers: Workers, jobs: Jobs) -> None:
    job_id = await jobs.add("poison", max_attempts=4)
    graveyard = Graveyard(jobs.connection)
    await graveyard.bury("dead-pool")
    await graveyard.give("dead-pool", job_id)
    await workers.start(TASKS, **{**QUICK, "max_recoveries": 0})

    async def is_failed() -> bool:
        return not (await jobs.one())["is_available"] and (await jobs.one())["locked_at"] is None

    await until(is_failed)
    assert await made(utils, job_id) == 1
    assert [end.attempts for end in await utils.history.of_job(job_id)] == [1]
    assert [error.attempt for error in await utils.history.errors_of_job(job_id)] == [1]


async def test_a_role_without_a_history(utils: WorkerUtils, workers: Workers, jobs: Jobs) -> None:
    job_id = await jobs.add("give_up", max_attempts=4)
    await workers.once(TASKS)
    await jobs.connection.execute(f"drop table {SCHEMA}._private_py_history, {SCHEMA}._private_py_errors")
    assert await made(utils, job_id) is None
