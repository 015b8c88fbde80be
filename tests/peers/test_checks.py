"""The checks of the churn notice what they are for; no peer is needed for that."""

from __future__ import annotations

from typing import Any

import pytest

from peers.churn import AGAIN, is_expected, key_faults
from peers.shared import Run, Shared, prepare


@pytest.fixture
async def ledger(connection: Any) -> Shared:
    await prepare(connection)
    return Shared(connection)


async def begin(shared: Shared, process: int, job_id: int, queue: int | None = None) -> int:
    run: int = await shared.connection.fetchval(
        "SELECT public.peer_begin('rust', $1, $2, 'echo', $3, 1, NULL, '{}')", process, job_id, queue
    )
    return run


async def end(shared: Shared, run: int, outcome: str = "done") -> None:
    await shared.connection.execute("SELECT public.peer_end($1, $2)", run, outcome)


async def test_one_after_another_is_no_overlap(ledger: Shared) -> None:
    await end(ledger, await begin(ledger, 1, job_id=1, queue=7), "failed")
    await end(ledger, await begin(ledger, 2, job_id=1, queue=7))
    await end(ledger, await begin(ledger, 1, job_id=2, queue=7))
    assert await ledger.overlaps() == []


@pytest.mark.parametrize("is_other_job", [False, True], ids=["of a job", "of a queue"])
async def test_two_runs_at_once_are_an_overlap(ledger: Shared, is_other_job: bool) -> None:
    first = await begin(ledger, 1, job_id=1, queue=7)
    await begin(ledger, 2, job_id=2 if is_other_job else 1, queue=7 if is_other_job else None)
    await end(ledger, first)
    assert len(await ledger.overlaps()) == 1


@pytest.mark.parametrize("is_before", [True, False], ids=["before the kill", "after the kill"])
async def test_a_run_that_a_kill_cut_off_lasts_until_the_kill(ledger: Shared, is_before: bool) -> None:
    await begin(ledger, 1, job_id=1)
    if is_before:
        await begin(ledger, 2, job_id=1)
    await ledger.about_to_die(1)
    await begin(ledger, 3, job_id=1)
    overlaps = await ledger.overlaps()
    assert bool(overlaps) == is_before


@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_job_that_was_done_must_not_run_again(ledger: Shared, is_killed: bool) -> None:
    """Unless its worker was killed, which may have been before it could write that."""
    await end(ledger, await begin(ledger, 1, job_id=1))
    if is_killed:
        await ledger.about_to_die(1)
    await begin(ledger, 2, job_id=1)
    assert bool(await ledger.connection.fetch(AGAIN)) != is_killed


def run_of(job_id: int, n: int, began: int, outcome: str | None = "done") -> Run:
    payload = {"key": "k", "n": n}
    return Run("node", 1, job_id, "echo", None, 1, "k", payload, began, began + 1, outcome)


@pytest.mark.parametrize(
    ("runs", "is_good"),
    [
        ([run_of(1, 1, 1), run_of(2, 2, 3)], True),
        ([run_of(2, 2, 1), run_of(1, 1, 3)], True),
        ([run_of(2, 2, 1), run_of(1, 1, 3), run_of(1, 1, 5)], False),
        ([run_of(2, 2, 1), run_of(2, 1, 3)], False),
        ([run_of(1, 1, 1), run_of(2, 2, 3, "failed")], False),
        ([run_of(1, 1, 1)], False),
    ],
    ids=["in order", "one fetched before", "it came back", "the old payload again", "not done", "never ran"],
)
def test_keys(runs: list[Run], is_good: bool) -> None:
    assert (key_faults(runs, "k", 2) == []) == is_good


def test_what_a_python_worker_has_to_say() -> None:
    assert is_expected("ERROR task echo (job 7): attempt 1 fails")
    assert not is_expected("ERROR the asyncio task 'source' ended unexpectedly and is started again")
