"""The health of worker processes: what probes over HTTP and systemd judge by.

Liveness never depends on the database: to restart a worker does not repair it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec

from ...database.connections.errors import explained
from ...errors.text import message_of
from ...hooks import Hooks, WorkerContext, events
from ...values.text import duration

PoolState = Literal["starting", "running", "stopping", "ended"]

STOPPING_MARGIN = 10.0
"""Seconds after the grace in which a pool writes, closes and ends."""
ANSWER_WITHIN = 0.8
"""Seconds for a process to say how it is; a probe of Kubernetes waits for one second by default."""
ANSWER_MARGIN = 30.0
"""Seconds, beside three poll intervals, within which a statement must have succeeded."""


class PoolHealth(msgspec.Struct, kw_only=True):
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
        problems = [self.not_live, *(pool.not_live for pool in self.pools)]
        return [text for text in problems if text is not None]

    @property
    def ready_problems(self) -> list[str]:
        """Why it does not run jobs."""
        if self.not_live is None and not self.pools:
            return ["the worker has stopped" if self.has_ended else "the worker is starting"]
        problems = [self.not_live, *(pool.not_live or pool.not_ready for pool in self.pools)]
        return [text for text in problems if text is not None]


class HealthSource(Protocol):
    """What knows the health of all worker processes."""

    @property
    def expected(self) -> int:
        """How many there should be."""
        ...

    async def health(self, within: float = ANSWER_WITHIN, /) -> Sequence[ProcessHealth]:
        """The health of each; one that does not answer within this time must be restarted."""
        ...


class OwnHealth:
    """A plugin that follows the pools of this process; the base of those that tell others about them."""

    expected = 1

    def __init__(self) -> None:
        self._pools: list[PoolProbe] = []
        self._has_ended = False

    def install(self, hooks: Hooks) -> None:
        """Nothing to observe before the start."""

    async def start(self, worker: WorkerContext) -> None:
        """Follow this worker until it ends."""
        self._has_ended = False
        self._pools.append(PoolProbe(worker, self._remove))

    async def health(self, _: float = 0.0) -> Sequence[ProcessHealth]:
        return [self.own_health()]

    def own_health(self) -> ProcessHealth:
        """The same without waiting."""
        pools = [pool.health() for pool in self._pools]
        return ProcessHealth(pid=os.getpid(), pools=pools, has_ended=self._has_ended)

    def _remove(self, pool: PoolProbe) -> None:
        if pool in self._pools:
            self._pools.remove(pool)
        self._has_ended = not self._pools


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
        on(events.PoolListenConnecting, self._started)
        on(events.WorkerGetJobError, self._fetch_failed)
        for event in (events.Stopped, events.PoolGracefulShutdown, events.PoolForcefulShutdown):
            on(event, self._stopping)
        on(events.PoolFatalError, self._died)
        on(events.PoolReleased, self._ended)

    def health(self) -> PoolHealth:
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
            return f"the worker cannot continue: {self._fatal}"
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

    def _started(self, _: events.Event) -> None:
        if self._state == "starting":
            self._state = "running"

    def _fetch_failed(self, event: events.WorkerGetJobError) -> None:
        self._fetch_error, self._failed_at = _first_line(explained(event.error)), time.monotonic()

    def _stopping(self, _: events.Event) -> None:
        self._state = "stopping"
        if self._stopping_since is None:
            self._stopping_since = time.monotonic()

    def _died(self, event: events.PoolFatalError) -> None:
        self._fatal = _first_line(message_of(event.error))

    def _ended(self, _: events.Event) -> None:
        self._state = "ended"
        self._on_end(self)


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
