"""Jobs of every kind while workers of all runtimes are stopped and killed at random, and what must hold."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from peers.protocol import PYTHON, RUNTIMES, Peer, Peers, RefusedError
from peers.shared import JOBS, QUEUES, Shared
from support.working import until

PATIENCE = 240.0  # seconds for the rest to run
KEYS = 12
QUEUE_NAMES = 8
KINDS = ("plain", "plain", "slow", "failing", "queued", "queued", "keyed", "batch", "adding")

EXPECTED = (" fails", "missed its heartbeats", "is dead; returned", "is back")
UNFINISHED = f"SELECT EXISTS (SELECT FROM {JOBS} WHERE attempts < max_attempts OR locked_at IS NOT NULL)"

AGAIN = """
    SELECT a.runtime, b.runtime, a.job_id FROM public.peer_runs a
    JOIN public.peer_runs b ON b.job_id = a.job_id AND b.began > a.ended
    LEFT JOIN public.peer_deaths death ON death.process = a.process
    WHERE a.outcome = 'done' AND death.process IS NULL
"""
"""Jobs that ran once more after a worker that lives had done them."""


@dataclass(frozen=True)
class Size:
    """How much happens."""

    jobs: int
    stops: int


@dataclass
class Churn:
    """One run with one seed: `await churn.run()`, then `await churn.faults()` must be empty."""

    peers: Peers
    shared: Shared
    seed: int
    size: Size
    added: set[int] = field(default_factory=set)
    last_of_key: dict[str, int] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    workers: dict[tuple[str, int], Peer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    async def run(self, order: tuple[str, ...] = RUNTIMES) -> None:
        """All of it; the workers start, and so migrate, in this order."""
        for place in [(runtime, number) for number in (0, 1) for runtime in order]:
            await self._start(place)
        clients = [await self.peers.start(runtime) for runtime in RUNTIMES]
        stops = sorted(self._chance.sample(range(self.size.jobs), self.size.stops))
        for number in range(self.size.jobs):
            await self._add(self._chance.choice(clients), number)
            if stops and stops[0] == number:
                stops.pop(0)
                await self._replace(self._chance.choice(list(self.workers)))
        await until(self._is_finished, timeout=PATIENCE, every=0.2)
        for place in list(self.workers):
            await self._end(place, is_killed=False)

    async def faults(self) -> dict[str, Any]:
        """What went wrong, by what must not."""
        runs = await self.shared.runs()
        done = {run.job_id for run in runs if run.outcome == "done"}
        left = await self.shared.connection.fetch(
            f"SELECT id, payload::text, last_error FROM {JOBS} WHERE payload::jsonb ->> 'key' IS NULL"
        )
        again = await self.shared.connection.fetch(AGAIN)
        held = f"SELECT locked_by FROM {QUEUES} WHERE locked_by IS NOT NULL AND locked_by <> ALL ($1::text[])"
        found = {
            "jobs that were never done": sorted(self.added - done),
            "jobs left": [tuple(row) for row in left],
            "queues locked": [tuple(row) for row in await self.shared.connection.fetch(held, self.ended)],
            "not in series": await self.shared.overlaps(),
            "done, and run again": [tuple(row) for row in again],
            "keys": [
                fault for key, last in self.last_of_key.items() for fault in key_faults(runs, key, last)
            ],
            "complaints of Python": self.complaints,
        }
        return {name: value for name, value in found.items() if value}

    # -- workers ---------------------------------------------------------------------------------------------

    async def _start(self, place: tuple[str, int]) -> None:
        runtime, number = place
        options: dict[str, Any] = {"local_queue": 10} if number else {}
        self.workers[place] = await self.peers.working(runtime, recovery=True, **options)

    async def _replace(self, place: tuple[str, int]) -> None:
        await self._end(place, is_killed=self._chance.random() < 2 / 3)
        await self._start(place)

    async def _end(self, place: tuple[str, int], *, is_killed: bool) -> None:
        peer = self.workers.pop(place)
        await self.shared.about_to_die(peer.pid)
        await (peer.kill() if is_killed else peer.stop())
        assert peer.worker_id is not None
        self.ended.append(peer.worker_id)
        await self.shared.age(peer.worker_id)
        if peer.runtime == PYTHON:
            self.complaints += [line for line in peer.said if not is_expected(line)]

    async def _is_finished(self) -> bool:
        for worker_id in self.ended:  # a statement that was on its way may have locked more after the end
            await self.shared.age(worker_id)
        return not await self.shared.connection.fetchval(UNFINISHED)

    # -- jobs ------------------------------------------------------------------------------------------------

    async def _add(self, client: Peer, number: int) -> None:
        chance = self._chance
        kind = chance.choice(KINDS)
        task = "echo"
        payload: dict[str, Any] = {"n": number}
        spec: dict[str, Any] = {}
        match kind:
            case "slow":
                payload["pause"] = chance.randrange(5, 300)
            case "failing":
                payload["fail_before"] = 2
            case "queued":
                payload["pause"] = 3
                spec["queue_name"] = f"q{chance.randrange(QUEUE_NAMES)}"
            case "keyed":
                key = f"k{chance.randrange(KEYS)}"
                payload |= {"key": key, "pause": 2}
                spec |= {"job_key": key, "job_key_mode": chance.choice(["replace", "preserve_run_at"])}
                self.last_of_key[key] = number
            case "batch":
                task = "batch"
                items = [{"n": n, "fail_before": 2} if chance.random() < 0.2 else {"n": n} for n in range(5)]
                self.added.add(await self._called(client, task, items, spec))
                return
            case "adding":
                payload["add"] = ["echo", {"from": number}, {}]
        job_id = await self._called(client, task, payload, spec)
        if kind != "keyed":
            self.added.add(job_id)

    async def _called(self, client: Peer, task: str, payload: Any, spec: dict[str, Any]) -> int:
        for _ in range(20):
            try:
                return await client.add(task, payload, **spec)
            except RefusedError as error:  # by a function of Rust: a worker took the job at that moment
                refused = error
        raise refused


def key_faults(runs: list[Any], key: str, last: int) -> list[str]:
    """The last payload of a key must be done. What a worker had fetched before may run beside it, once."""
    of_key = [run for run in runs if isinstance(run.payload, dict) and run.payload.get("key") == key]
    final = [run for run in of_key if run.payload["n"] == last]
    if not any(run.outcome == "done" for run in final):
        return [f"{key}: {last} was not done"]
    late = [run for run in of_key if run.payload["n"] != last and run.began > final[0].began]
    if len(late) > 1:
        return [f"{key}: {[run.payload['n'] for run in late]} after {last}"]
    return [f"{key}: job {run.job_id} with an older payload" for run in late if run.job_id == final[0].job_id]


def is_expected(line: str) -> bool:
    """Whether a Python worker has to say this: tasks fail, and other workers die."""
    return any(words in line for words in EXPECTED)
