"""WatchedPool: follows one pool through its life, for health checks."""

from __future__ import annotations

import time
from collections.abc import Callable

from ...db.errors import explained
from ...error_text import message_of
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
from .health import ANSWER_MARGIN, STOPPING_MARGIN, PoolHealth, PoolState


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
            return f"the worker has been stopping for {health.seconds_stopping:.0f} seconds"
        return None

    def _not_ready(self, health: PoolHealth) -> str | None:
        if health.state != "running":
            return f"the worker is {health.state}" if health.state != "ended" else "the worker has stopped"
        silent, allowed = health.seconds_since_answer, 3 * self._worker.options.poll_interval + ANSWER_MARGIN
        if self._fetch_error is not None and time.monotonic() - silent < self._failed_at:
            return f"jobs cannot be fetched: {self._fetch_error}"
        if silent > allowed:
            return f"the database has not answered for {silent:.0f} seconds"
        if (stalled := self._worker.pool.stalled_since) is not None:
            return f"no fetch has succeeded for {time.monotonic() - stalled:.0f} seconds; see the log"
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
