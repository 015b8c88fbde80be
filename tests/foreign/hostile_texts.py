"""Names, keys and payloads full of what means something in SQL, and the check that they come back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from graphile_worker import JobSpec
from graphile_worker.options import JobFilter
from support.properties import examples

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

EACH = examples(25, HealthCheck.function_scoped_fixture, database=None)


def cases() -> list[tuple[str, str, str]]:
    """Triples of task identifier, queue name and job key."""
    found = [(ATTACK, ATTACK, ATTACK)]

    @EACH
    @given(NAMES, NAMES, NAMES)
    def collect(task: str, queue: str, key: str) -> None:
        found.append((task, queue, key))

    collect()
    return found


async def check_texts(
    utils: Any, do: Callable[[Any], Awaitable[Any]], task: str, queue: str, key: str
) -> None:
    """Add, list, change and remove jobs. `do` returns the result of a method of either client."""
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
    [found] = await do(utils.jobs.list(filter))
    assert (found.id, found.task_identifier, found.queue_name, found.key) == (job.id, task, queue, key)
    assert found.payload == task
    [failed] = await do(utils.permanently_fail_jobs([plain.id], queue))
    assert failed.last_error == queue
    removed = await do(utils.remove_job(key))
    assert removed is not None
    assert removed.id == job.id
