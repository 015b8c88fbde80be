"""What a worker process says about its health, and what `/livez` and `/readyz` make of it. Pure.

Liveness never depends on the database: to restart a worker does not repair it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from .server import Response, json_response

PoolState = Literal["starting", "running", "stopping", "ended"]

STOPPING_MARGIN = 10.0
"""Seconds after the grace in which a pool writes, closes and ends."""
ANSWER_MARGIN = 30.0
"""Seconds, beside three poll intervals, within which a statement must have succeeded."""


class PoolHealth(msgspec.Struct, kw_only=True):
    """One pool."""

    pool_id: str
    state: PoolState
    running: int
    slots: int
    is_listening: bool
    seconds_since_answer: float
    seconds_stopping: float | None = None
    not_live: str | None = None
    """Why it must be restarted."""
    not_ready: str | None = None


class ProcessHealth(msgspec.Struct, kw_only=True):
    """One worker process. Without a pool it is still starting, or about to exit."""

    pid: int
    pools: list[PoolHealth]
    not_live: str | None = None
    has_ended: bool = False

    @property
    def live_problems(self) -> list[str]:
        """Why the process must be restarted."""
        return _given([self.not_live, *(pool.not_live for pool in self.pools)])

    @property
    def ready_problems(self) -> list[str]:
        """Why it does not run jobs."""
        if self.not_live is None and not self.pools:
            return ["the worker has stopped" if self.has_ended else "the worker is starting"]
        return _given([self.not_live, *(pool.not_live or pool.not_ready for pool in self.pools)])


def livez(processes: Sequence[ProcessHealth], *, is_verbose: bool) -> Response:
    """200 unless a process must be restarted. One that has not started yet is alive."""
    return _response([(process, process.live_problems) for process in processes], [], is_verbose=is_verbose)


def readyz(processes: Sequence[ProcessHealth], *, expected: int, is_verbose: bool) -> Response:
    """200 if every expected process runs jobs."""
    missing = expected - len(processes)
    problems = [f"{len(processes)} of {expected} worker processes are running"] if missing > 0 else []
    with_retry_rules = [(process, process.ready_problems) for process in processes]
    return _response(with_retry_rules, problems, is_verbose=is_verbose)


def _response(
    with_retry_rules: Sequence[tuple[ProcessHealth, list[str]]], problems: list[str], *, is_verbose: bool
) -> Response:
    for process, own in with_retry_rules:
        problems += (
            [f"worker process {process.pid}: {text}" for text in own] if len(with_retry_rules) > 1 else own
        )
    body: dict[str, object] = {"status": "unavailable" if problems else "ok", "problems": problems}
    if is_verbose:
        body["workers"] = [_details(process, own) for process, own in with_retry_rules]
    return json_response(503 if problems else 200, body)


def _details(process: ProcessHealth, problems: list[str]) -> dict[str, object]:
    return {"pid": process.pid, "healthy": not problems, "pools": [_pool(pool) for pool in process.pools]}


def _pool(pool: PoolHealth) -> dict[str, object]:
    stopping = pool.seconds_stopping
    return {
        "pool_id": pool.pool_id,
        "state": pool.state,
        "running": pool.running,
        "slots": pool.slots,
        "listening": pool.is_listening,
        "seconds_since_answer": round(pool.seconds_since_answer, 1),
        "seconds_stopping": None if stopping is None else round(stopping, 1),
    }


def _given(problems: list[str | None]) -> list[str]:
    return [text for text in problems if text is not None]
