"""Forbidden flags: given as a list, or asked for at each fetch."""

from __future__ import annotations

from typing import Any

import pytest

from graphile_worker.errors import ConfigError
from support.cases import Cases
from support.working import IN_ONE_MODE, SCHEMA, Jobs, Workers


def as_function(flags: Any) -> Any:
    return lambda: flags


def as_coroutine_function(flags: Any) -> Any:
    async def forbidden() -> Any:
        return flags

    return forbidden


def as_is(flags: Any) -> Any:
    return flags


async def run_with(jobs: Jobs, workers: Workers, forbidden: Any) -> list[str]:
    ran: list[str] = []

    async def flag_test(payload: Any) -> None:
        ran.append(payload["name"])

    await jobs.add("flag_test", {"name": "first"}, flags=["a", "b"])
    await jobs.add("flag_test", {"name": "second"}, flags=["c", "d"])
    await workers.once({"flag_test": flag_test}, forbidden_flags=forbidden)
    return ran


@pytest.mark.compat("FLG-2", "FLG-3", "FLG-4")
async def test_a_job_with_a_forbidden_flag_stays(jobs: Jobs, workers: Workers) -> None:
    for given in (as_is, as_function, as_coroutine_function):
        assert await run_with(jobs, workers, given(["d"])) == ["first"], given
        row = await jobs.one()
        assert (row["attempts"], row["locked_by"]) == (0, None)
        await jobs.connection.execute(f"delete from {SCHEMA}._private_jobs")


@IN_ONE_MODE
@pytest.mark.compat("FLG-5", "FLG-6", "FLG-7", "FLG-8", "FLG-9", "FLG-10", "FLG-11")
async def test_without_a_flag_in_common_every_job_runs(jobs: Jobs, workers: Workers) -> None:
    with Cases() as cases:
        for given in (as_is, as_function, as_coroutine_function):
            for flags in (["z"], [], None):
                with cases(given.__name__, flags):
                    assert sorted(await run_with(jobs, workers, given(flags))) == ["first", "second"]
                    assert await jobs.count() == 0


async def test_flags_from_a_function_are_asked_for_before_each_job(jobs: Jobs, workers: Workers) -> None:
    forbidden: list[str] = []
    ran: list[int] = []

    async def flag_test(payload: Any) -> None:
        ran.append(payload["n"])
        if payload["n"] == 1:
            forbidden.append("limited")

    for n in range(4):
        await jobs.add("flag_test", {"n": n}, flags=["limited"], priority=n)
    await workers.once({"flag_test": flag_test}, forbidden_flags=lambda: forbidden, concurrency=1)
    assert ran == [0, 1]
    assert await jobs.count() == 2


async def test_forbidden_flags_hold_for_the_next_job_of_a_queue_too(jobs: Jobs, workers: Workers) -> None:
    ran: list[int] = []

    async def flag_test(payload: Any) -> None:
        ran.append(payload["n"])

    for n in range(4):
        await jobs.add(
            "flag_test", {"n": n}, flags=["limited"] if n % 2 else None, priority=n, queue="serial"
        )
    await workers.once({"flag_test": flag_test}, forbidden_flags=["limited"])
    assert ran == [0, 2]
    assert await jobs.count() == 2


@IN_ONE_MODE
async def test_flags_of_a_wrong_type_are_refused(jobs: Jobs, workers: Workers) -> None:
    for flags in ("d", [1]):
        with pytest.raises(ConfigError, match="forbidden_flags"):
            await run_with(jobs, workers, flags)
