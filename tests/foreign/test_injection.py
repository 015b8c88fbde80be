"""Names, keys and payloads come back unchanged through every library, whatever they contain."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foreign.places import EACH_ADAPTER, PLACES, Place
from graphile_worker import JobFilter, JobSpec

HOSTILE = [
    "'",
    '"',
    "%",
    "%s",
    "%(p1)s",
    "%%",
    "$1",
    "$$",
    "$body$",
    "\\",
    "\n",
    "--",
    "/*",
    ";",
    ":p",
    "{",
    "?",
]
PIECES = st.one_of(st.sampled_from(HOSTILE), st.characters(codec="utf-8", exclude_characters="\0"))
NAMES = st.lists(PIECES, min_size=1, max_size=12).map("".join).filter(lambda text: len(text) < 100)
ATTACK = "a'b\"c %s %(p1)s %% $1 $$ \\ {x} :y\n-- drop\n; select 1/0; --ü"

# One connection per library: a new one per case would take most of the time.
EACH = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None
)


@pytest.mark.parametrize("name", EACH_ADAPTER)
async def test_hostile_texts_come_back_unchanged(name: str, shared_url: str, observer: Any) -> None:
    async with PLACES[name](shared_url) as place:
        await _check(place, ATTACK, ATTACK, ATTACK)
        cases: list[tuple[str, str, str]] = []

        @EACH
        @given(NAMES, NAMES, NAMES)
        def collect(task: str, queue: str, key: str) -> None:
            cases.append((task, queue, key))

        collect()
        for case in cases:
            await _check(place, *case)
        await place.rollback()
    assert await observer.fetchval("select count(*) from graphile_worker._private_jobs") == 0


async def _check(place: Place, task: str, queue: str, key: str) -> None:
    utils, do = place.utils(), place.do
    payload = {key: [task, queue]}
    job = await do(utils.add_job(task, payload, queue_name=queue, job_key=key, flags=[queue]))
    assert (job.task_identifier, job.payload, job.key, job.flags) == (task, payload, key, {queue: True})
    [again] = await do(utils.add_jobs([JobSpec(task, task, queue_name=queue, job_key=key, flags=[key])]))
    assert (again.id, again.payload, again.key) == (job.id, task, key)
    [plain] = await do(utils.add_jobs([JobSpec(task, {queue: key}, queue_name=queue)]))
    assert plain.payload == {queue: key}
    single = await do(utils.add_job(task, {key: task}, queue_name=queue, flags=[key]))
    assert (single.task_identifier, single.payload, single.flags) == (task, {key: task}, {key: True})
    filter = JobFilter(task_identifier=task, queue_name=queue, job_key=key)
    [found] = await do(utils.list_jobs(filter))
    assert (found.id, found.task_identifier, found.queue_name, found.key) == (job.id, task, queue, key)
    assert found.payload == task
    [failed] = await do(utils.permanently_fail_jobs([plain.id], queue))
    assert failed.last_error == queue
    removed = await do(utils.remove_job(key))
    assert removed is not None
    assert removed.id == job.id
