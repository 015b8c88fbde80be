"""One runtime adds a job, another changes it, a third one runs it: each understands what the others did."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from peers.directions import of_three, of_two
from peers.protocol import NODE, PYTHON, RUNTIMES, RUST, Peers
from peers.shared import Shared
from support.working import until

Three = tuple[str, str, str]
Two = tuple[str, str]

EARLIER = datetime(2020, 1, 1, tzinfo=UTC)
LATER = datetime(2100, 1, 1, tzinfo=UTC)
SELECTIVE = [PYTHON, RUST]  # the runtimes that have these rules
IS_LISTENING = """
    SELECT EXISTS (
        SELECT FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'listen%'
    )
"""


@of_two("{} adds", "{} runs")
async def test_added_and_run(peers: Peers, shared: Shared, direction: Two) -> None:
    adder, worker = direction
    payload = {"text": 'ü 😀 \\ "', "list": [1, 2.5, None, True], "big": 9007199254740991}
    client = await peers.start(adder)
    one = await client.add(
        "echo", payload, queue_name="q", job_key="k", priority=3, max_attempts=7, flags=["f"]
    )
    row = await shared.job(one)
    assert (row["priority"], row["max_attempts"], row["key"]) == (3, 7, "k")
    assert json.loads(row["flags"]) == {"f": True}
    many = await client.call("add_many", [["echo", {"n": n}, {"priority": n}] for n in range(3)])
    async with peers.worker(worker, concurrency=1):
        await shared.until_gone()
    runs = await shared.runs()
    assert [run.job_id for run in runs] == [*many, one], "by priority"
    assert {run.runtime for run in runs} == {worker}
    assert (runs[-1].payload, runs[-1].key, runs[-1].attempt) == (payload, "k", 1)


@of_two("{} adds from a task", "{} runs")
async def test_added_from_a_task(peers: Peers, shared: Shared, direction: Two) -> None:
    first, second = direction
    client = await peers.start(first)
    await client.add("echo", {"add": ["batch", [{"n": 1}], {"flags": ["second"], "job_key": "k"}]})
    async with peers.worker(first, forbidden_flags=["second"]):
        await shared.until_runs(1)
        await shared.until_job(2, "locked_at IS NULL")
    async with peers.worker(second):
        await shared.until_gone()
    assert [(run.runtime, run.task, run.key) for run in await shared.runs()] == [
        (first, "echo", None),
        (second, "batch", "k"),
    ]


@of_two("{} adds", "{} is woken")
async def test_added_and_announced(peers: Peers, shared: Shared, direction: Two) -> None:
    """A worker that hardly ever polls runs the job at once, because the adder announces it."""
    adder, worker = direction
    client = await peers.start(adder)
    async with peers.worker(worker, poll=3_600_000):
        await until(lambda: shared.connection.fetchval(IS_LISTENING))
        await client.add("echo")
        await shared.until_gone()


@pytest.mark.parametrize("mode", ["replace", "preserve_run_at", "unsafe_dedupe"])
@of_three("{} adds", "{} replaces", "{} runs")
async def test_replaced(peers: Peers, shared: Shared, direction: Three, mode: str) -> None:
    adder, replacer, worker = direction
    job_id = await (await peers.start(adder)).add("echo", {"n": 1}, job_key="k", run_at=LATER.isoformat())
    changer = await peers.start(replacer)
    assert await changer.add("echo", {"n": 2}, job_key="k", job_key_mode=mode, priority=5) == job_id
    row = await shared.job(job_id)
    is_kept = mode == "unsafe_dedupe"
    assert json.loads(row["payload"]) == {"n": 1 if is_kept else 2}
    assert row["priority"] == (0 if is_kept else 5)
    assert (row["run_at"] == LATER) == (mode != "replace")
    await shared.make_due()
    async with peers.worker(worker):
        await shared.until_gone()
    (run,) = await shared.runs()
    assert (run.runtime, run.payload, run.key) == (worker, {"n": 1 if is_kept else 2}, "k")


@of_three("{} adds", "{} replaces", "{} runs the old one meanwhile")
async def test_replaced_while_it_runs(peers: Peers, shared: Shared, direction: Three) -> None:
    """The running one ends and does not come back, even if it fails; the new one runs."""
    adder, replacer, worker = direction
    payload = {"n": 1, "gate": "go", "fail_before": 99}
    old = await (await peers.start(adder)).add("echo", payload, job_key="k")
    async with peers.worker(worker):
        await shared.until_runs(1, ended=False)
        new = await (await peers.start(replacer)).add("echo", {"n": 2}, job_key="k")
        assert new != old
        await shared.open("go")
        await shared.until_gone(new)
        await shared.until_job(old, "locked_at IS NULL")
    runs = await shared.runs()
    assert sorted((run.payload["n"], run.outcome) for run in runs) == [(1, "failed"), (2, "done")]
    row = await shared.job(old)
    assert (row["key"], row["attempts"] == row["max_attempts"]) == (None, True)


@of_three("{} adds", "{} removes", "{} runs")
async def test_removed(peers: Peers, shared: Shared, direction: Three) -> None:
    adder, remover, worker = direction
    client = await peers.start(adder)
    await client.add("echo", {"n": 1}, job_key="gone")
    await client.add("echo", {"n": 2}, job_key="stays")
    await (await peers.start(remover)).call("remove", "gone")
    async with peers.worker(worker):
        await shared.until_gone()
    assert [run.payload for run in await shared.runs()] == [{"n": 2}]


@of_three("{} adds", "{} removes", "{} runs it meanwhile")
async def test_removed_while_it_runs(peers: Peers, shared: Shared, direction: Three) -> None:
    adder, remover, worker = direction
    job_id = await (await peers.start(adder)).add("echo", {"gate": "go", "fail_before": 99}, job_key="k")
    async with peers.worker(worker):
        await shared.until_runs(1, ended=False)
        await (await peers.start(remover)).call("remove", "k")
        await shared.open("go")
        row = await shared.until_job(job_id, "locked_at IS NULL")
        assert (row["key"], row["attempts"]) == (None, row["max_attempts"])
    assert [run.outcome for run in await shared.runs()] == ["failed"]


@of_three("{} adds", "{} reschedules", "{} runs")
async def test_rescheduled(peers: Peers, shared: Shared, direction: Three) -> None:
    adder, changer, worker = direction
    job_id = await (await peers.start(adder)).add("echo", {}, run_at=LATER.isoformat(), max_attempts=1)
    changes = {"run_at": EARLIER.isoformat(), "priority": -2, "attempts": 2, "max_attempts": 9}
    assert await (await peers.start(changer)).call("reschedule", [job_id], changes) == [job_id]
    row = await shared.job(job_id)
    assert (row["run_at"], row["priority"], row["attempts"]) == (EARLIER, -2, 2)
    assert row["max_attempts"] == 9
    async with peers.worker(worker):
        await shared.until_gone()
    (run,) = await shared.runs()
    assert (run.runtime, run.attempt) == (worker, 3)


@of_three("{} adds", "{} gives up", "{} leaves it, then runs it")
async def test_given_up(peers: Peers, shared: Shared, direction: Three) -> None:
    adder, changer, worker = direction
    client = await peers.start(adder)
    lost = await client.add("echo", {"n": 1})
    other = await peers.start(changer)
    assert await other.call("give_up", [lost], "not wanted") == [lost]
    row = await shared.job(lost)
    assert (row["last_error"], row["attempts"]) == ("not wanted", row["max_attempts"])
    async with peers.worker(worker):
        await shared.until_gone(await client.add("echo", {"n": 2}))
        assert [run.payload["n"] for run in await shared.runs()] == [2]
        await other.call("reschedule", [lost], {"attempts": 3, "run_at": EARLIER.isoformat()})
        await shared.until_gone(lost)
    assert [(run.payload["n"], run.attempt) for run in await shared.runs()] == [(2, 1), (1, 4)]


@of_three("{} adds", "{} leaves it", "{} runs")
async def test_forbidden_flags(peers: Peers, shared: Shared, direction: Three) -> None:
    adder, without, worker = direction
    client = await peers.start(adder)
    flagged = await client.add("echo", {"n": 1}, flags=["heavy"])
    async with peers.worker(without, forbidden_flags=["heavy"]):
        plain = await client.add("echo", {"n": 2}, flags=["light"])
        await shared.until_gone(plain)
        assert (await shared.job(flagged))["attempts"] == 0
        async with peers.worker(worker):
            await shared.until_gone(flagged)
    assert [(run.runtime, run.payload["n"]) for run in await shared.runs()] == [(without, 2), (worker, 1)]


FLAGS = [[], ["a"], ["b"], ["a", "b"], ["A"]]
RULES: dict[str, tuple[dict[str, list[str]], list[list[str]]]] = {
    "accepted": ({"accepted_flags": ["a"]}, [["a"], ["a", "b"]]),
    "allowlist": ({"flag_allowlist": ["a"]}, [[], ["a"]]),
    "empty allowlist": ({"flag_allowlist": []}, [[]]),
    "forbidden wins": ({"accepted_flags": ["a"], "forbidden_flags": ["b"]}, [["a"]]),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("selective", SELECTIVE)
@pytest.mark.parametrize("adder", RUNTIMES, ids="{} adds".format)
async def test_rules_about_flags(peers: Peers, shared: Shared, adder: str, selective: str, rule: str) -> None:
    """What a worker with such a rule leaves keeps its attempts, and Node runs it."""
    options, expected = RULES[rule]
    client = await peers.start(adder)
    for flags in FLAGS:
        await client.add("echo", {"flags": flags}, flags=flags)
    async with peers.worker(selective, **options):
        taken = await shared.until_runs(len(expected))
        await shared.until_count(len(FLAGS) - len(expected))
    assert sorted(run.payload["flags"] for run in taken) == expected
    async with peers.worker(NODE):
        await shared.until_gone()
    runs = await shared.runs()
    assert {run.attempt for run in runs} == {1}
    assert [run.runtime for run in runs].count(NODE) == len(FLAGS) - len(expected)
