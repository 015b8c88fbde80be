"""The health of a worker process: what it says, and what `/livez` and `/readyz` make of it.

What a worker process says about its health, and what `/livez` and `/readyz` make of it. Pure.

Liveness never depends on the database: to restart a worker does not repair it.

WatchedPool: follows one pool through its life, for health checks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from ...database.connections.errors import explained
from ...errors.text import message_of
from ...hooks import WorkerContext
from ...hooks.events import (
    Event,
    PoolFatalError,
    PoolForcefulShutdown,
    PoolGracefulShutdown,
    PoolListenConnecting,
    PoolReleased,
    Stopped,
    WorkerGetJobError,
)
from ...values.text import duration
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


class PoolProbe:
    """One pool, from the start of its plugins to its end."""

    def __init__(self, worker: WorkerContext, on_end: Callable[[PoolProbe], None]) -> None:
        self._worker = worker
        self._on_end = on_end
        self._state: PoolState = "starting"
        self._stopping_since: float | None = None
        self._fatal: str | None = None
        self._fetch_error: str | None = None
        self._failed_at = 0.0
        on = worker.events.on
        on(PoolListenConnecting, self._started)
        on(WorkerGetJobError, self._fetch_failed)
        for event in (Stopped, PoolGracefulShutdown, PoolForcefulShutdown):
            on(event, self._stopping)
        on(PoolFatalError, self._died)
        on(PoolReleased, self._ended)

    def health(self) -> PoolHealth:
        """Its health now."""
        pool = self._worker.pool
        since = self._stopping_since
        health = PoolHealth(
            pool_id=self._worker.pool_id,
            state=self._state,
            running=len(pool.running),
            slots=pool.concurrency,
            is_listening=pool.is_listening,
            seconds_since_answer=pool.seconds_since_answer,
            seconds_stopping=None if since is None else time.monotonic() - since,
        )
        health.not_live = self._not_live(health)
        health.not_ready = self._not_ready(health)
        return health

    def _not_live(self, health: PoolHealth) -> str | None:
        allowed = self._worker.options.grace + STOPPING_MARGIN
        if self._fatal is not None:
            return f"the worker cannot go on: {self._fatal}"
        if health.seconds_stopping is not None and health.seconds_stopping > allowed:
            return f"the worker has been stopping for {duration(health.seconds_stopping)}"
        return None

    def _not_ready(self, health: PoolHealth) -> str | None:
        if health.state != "running":
            return f"the worker is {health.state}" if health.state != "ended" else "the worker has stopped"
        silent, allowed = health.seconds_since_answer, 3 * self._worker.options.poll_interval + ANSWER_MARGIN
        if self._fetch_error is not None and time.monotonic() - silent < self._failed_at:
            return f"jobs cannot be fetched: {self._fetch_error}"
        if silent > allowed:
            return f"the database has not answered for {duration(silent)}"
        if (stalled := self._worker.pool.stalled_since) is not None:
            return f"no fetch has succeeded for {duration(time.monotonic() - stalled)}; see the log"
        return None

    # -- events --------------------------------------------------------------------------------------------

    def _started(self, _: Event) -> None:
        if self._state == "starting":
            self._state = "running"

    def _fetch_failed(self, event: WorkerGetJobError) -> None:
        self._fetch_error, self._failed_at = _first_line(explained(event.error)), time.monotonic()

    def _stopping(self, _: Event) -> None:
        self._state = "stopping"
        if self._stopping_since is None:
            self._stopping_since = time.monotonic()

    def _died(self, event: PoolFatalError) -> None:
        self._fatal = _first_line(message_of(event.error))

    def _ended(self, _: Event) -> None:
        self._state = "ended"
        self._on_end(self)


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
