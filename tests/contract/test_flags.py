"""Rules for flags: given as lists, or asked for at each fetch."""

from __future__ import annotations

from typing import Any

import pytest

from graphile_worker import Lane, Limit, task
from graphile_worker.errors import ConfigError
from graphile_worker.values.flags import FlagRules
from support.cases import Cases
from support.working import IN_ONE_MODE, SCHEMA, Jobs, Workers, until


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


RULES: list[tuple[dict[str, list[str]], list[str]]] = [
    ({"accepted_flags": ["gpu"]}, ["gpu", "gpu eu", "gpu marked"]),
    ({"flag_allowlist": ["gpu"]}, ["plain", "gpu", "gpu marked", "marked"]),
    ({"flag_allowlist": []}, ["plain", "marked"]),
    (
        {"accepted_flags": ["gpu", "eu"], "flag_allowlist": ["gpu", "eu"]},
        ["gpu", "eu", "gpu eu", "gpu marked"],
    ),
    ({"accepted_flags": ["gpu", "eu"], "forbidden_flags": ["eu"]}, ["gpu", "gpu marked"]),
    (
        {"accepted_flags": [], "forbidden_flags": []},
        ["plain", "gpu", "eu", "gpu eu", "GPU", "gpu marked", "marked"],
    ),
]
"""Options, and the jobs that a worker with them takes."""
JOBS: dict[str, list[str] | None] = {
    "plain": None, "gpu": ["gpu"], "eu": ["eu"], "gpu eu": ["gpu", "eu"], "GPU": ["GPU"],
    "gpu marked": ["gpu", "py:tag=x"], "marked": ["py:keep"],
}  # fmt: skip
WHERE: dict[str, Any] = {
    "no queue": lambda name: {},
    "queues": lambda name: {"queue": f"of {name}"},
    "one queue": lambda name: {"queue": "serial"},
    "keys": lambda name: {"key": name},
}


@pytest.mark.parametrize("where", WHERE)
async def test_a_worker_takes_the_jobs_that_its_rules_take(jobs: Jobs, workers: Workers, where: str) -> None:
    """The others have neither lost an attempt nor held up the end of `run_once`."""
    ran: list[str] = []

    async def flag_test(payload: Any) -> None:
        ran.append(payload["name"])

    with Cases() as cases:
        for rules, expected in RULES:
            for given in (as_is, as_function, as_coroutine_function):
                with cases(rules, given.__name__):
                    ran.clear()
                    for name, flags in JOBS.items():
                        await jobs.add("flag_test", {"name": name}, flags=flags, **WHERE[where](name))
                    options = {option: given(flags) for option, flags in rules.items()}
                    await workers.once({"flag_test": flag_test}, **options)
                    assert sorted(ran) == sorted(expected)
                    assert {(row["attempts"], row["locked_by"]) for row in await jobs.all()} <= {(0, None)}
                    assert await jobs.count() == len(JOBS) - len(expected)
                    assert await jobs.locked() == 0
                await jobs.connection.execute(f"delete from {SCHEMA}._private_jobs")


async def test_a_running_worker_takes_what_it_accepts_beside_what_it_refuses(
    jobs: Jobs, workers: Workers
) -> None:
    """Many short jobs, which are held in the default mode, of which every second is refused."""
    ran: list[int] = []

    async def flag_test(payload: Any) -> None:
        ran.append(payload["n"])

    ids = await jobs.add_many("flag_test", 400)
    await jobs.connection.execute(
        f"""update {SCHEMA}._private_jobs set flags = '{{"gpu": true}}' where id % 2 = 0"""
    )
    await workers.start({"flag_test": flag_test}, accepted_flags=["gpu"], concurrency=5)
    await until(lambda: len(ran) == 200)
    late = await jobs.add("flag_test", {"n": 1000}, flags=["gpu"])
    await until(lambda: ran[-1] == 1000)
    refused = {id_ for id_ in ids if id_ % 2}

    async def is_written() -> bool:
        return await jobs.count() == len(refused)

    await until(is_written)
    rows = await jobs.all()
    assert {row["id"] for row in rows} == refused - {late}
    assert {(row["attempts"], row["locked_by"]) for row in rows} == {(0, None)}


async def test_rules_from_functions_change_between_fetches(jobs: Jobs, workers: Workers) -> None:
    accepted, allowed, ran = ["first"], [["first"]], []

    async def flag_test(payload: Any) -> None:
        ran.append(payload["name"])
        accepted[0] = "second"
        allowed[0] = ["second"] if len(ran) == 1 else []

    for name in ("first", "second", "second", "third"):
        await jobs.add("flag_test", {"name": name}, flags=[name])
    await workers.once(
        {"flag_test": flag_test},
        concurrency=1,
        accepted_flags=lambda: accepted,
        flag_allowlist=lambda: allowed[0],
    )
    assert ran == ["first", "second"]
    assert await jobs.count() == 2


@IN_ONE_MODE
async def test_lanes_keep_the_rules(jobs: Jobs, workers: Workers) -> None:
    ran: list[str] = []

    def recording(name: str, **options: Any) -> Any:
        async def call(payload: Any) -> None:
            ran.append(f"{name} {payload['name']}")

        return task(name, **options)(call)

    tasks = [
        recording("plain"),
        recording("slow", lane="slow"),
        recording("fair", lane="fair"),
        recording("limited", limit=Limit("some", concurrency=1)),
    ]
    for each in tasks:
        for name, flags in JOBS.items():
            await jobs.add(each.identifier, {"name": name}, flags=flags, queue=f"of {name}")
    lanes = [Lane("slow", concurrency=1), Lane("fair", concurrency=1, order="fair")]
    await workers.once(tasks, lanes=lanes, accepted_flags=["gpu"], flag_allowlist=["gpu"])
    assert sorted(ran) == sorted(
        f"{each.identifier} {name}" for each in tasks for name in ("gpu", "gpu marked")
    )
    assert {(row["attempts"], row["locked_by"]) for row in await jobs.all()} == {(0, None)}


@IN_ONE_MODE
async def test_rules_of_a_wrong_type_are_refused(jobs: Jobs, workers: Workers) -> None:
    async def flag_test() -> None: ...

    for name in ("accepted_flags", "flag_allowlist"):
        wrong: list[Any] = ["d", [1], as_function("d"), as_function([1]), as_function(3)]
        for flags in wrong:
            await jobs.add("flag_test")
            with pytest.raises(ConfigError, match=f"{name}: expected a list of strings"):
                await workers.once({"flag_test": flag_test}, **{name: flags})


@IN_ONE_MODE
async def test_rules_that_no_job_can_satisfy_are_warned_of(
    jobs: Jobs, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    async def flag_test() -> None: ...

    for rules, expected in (
        ({"accepted_flags": ["a", "b"], "forbidden_flags": ["b", "a"]}, True),
        ({"accepted_flags": ["a", "b"], "flag_allowlist": ["c"]}, True),
        ({"accepted_flags": ["a", "b"], "flag_allowlist": ["a"], "forbidden_flags": ["a"]}, True),
        ({"accepted_flags": ["a", "b"], "flag_allowlist": []}, True),
        ({"accepted_flags": ["a", "b"], "flag_allowlist": ["b"]}, False),
        ({"accepted_flags": ["a", "py:keep"], "flag_allowlist": []}, False),
        ({"accepted_flags": ["a"], "forbidden_flags": ["b"]}, False),
        ({"flag_allowlist": ["a"], "forbidden_flags": ["a"]}, False),
        ({"accepted_flags": as_function(["a"]), "forbidden_flags": ["a"]}, False),
    ):
        await jobs.add("flag_test")
        caplog.clear()
        await workers.once({"flag_test": flag_test}, **rules)
        warnings = [line for line in caplog.messages if "takes no job" in line]
        assert len(warnings) == expected, rules
    assert FlagRules(("a",), ("a",)).contradiction == (
        "this worker takes no job, because each of its accepted_flags (a) is in forbidden_flags "
        "or missing in flag_allowlist"
    )
