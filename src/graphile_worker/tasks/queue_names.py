"""QueueNames: the names of queues by id, requested in batches and cached (QN1).

A job row holds only the id of its queue. Requests within a short delay share one statement; cached names need
none. Failures are not cached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ..errors import GraphileWorkerError, InvalidArgumentError
from ..values.clock import Clock, SystemClock

LookUp = Callable[[Sequence[int]], Awaitable[Sequence[str | None]]]
"""Returns names in the order of the ids, None for unknown ids."""

MAX_CACHED = 10_000  # bounds memory when there is a queue per customer


class QueueNames:
    """A cache over `look_up` that batches requests for `delay` seconds."""

    def __init__(self, look_up: LookUp, *, delay: float = 0.05, clock: Clock | None = None) -> None:
        self._look_up = look_up
        self._delay = delay
        self._clock = clock or SystemClock()
        self._names: dict[int, str] = {}
        self._waiting: dict[int, asyncio.Future[str]] = {}
        self._requested: list[int] = []
        self._flushes: set[asyncio.Task[None]] = set()

    def cached(self, queue_id: int) -> str | None:
        """The name if it is cached; never queries the database."""
        return self._names.get(queue_id)

    async def get(self, queue_id: int) -> str:
        """The name of the queue; does not suspend if it is cached. An unknown id is an error."""
        name = self._names.get(queue_id)
        if name is not None:
            return name
        waiting = self._waiting.get(queue_id)
        if waiting is None:
            waiting = self._request(queue_id)
        # A cancelled caller must not cancel the request of the others.
        return await asyncio.shield(waiting)

    async def close(self) -> None:
        """Stop; pending requests fail."""
        for flush in self._flushes:
            flush.cancel()
        if self._flushes:
            await asyncio.wait(self._flushes)
        error = GraphileWorkerError("the worker has stopped, so queue names cannot be looked up")
        self._reject(list(self._waiting), error)
        self._requested.clear()

    def _request(self, queue_id: int) -> asyncio.Future[str]:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        future.add_done_callback(_mark_retrieved)
        self._waiting[queue_id] = future
        self._requested.append(queue_id)
        if len(self._requested) == 1:
            flush = asyncio.create_task(self._flush_later(), name="graphile-worker queue names")
            self._flushes.add(flush)
            flush.add_done_callback(self._flushes.discard)
        return future

    async def _flush_later(self) -> None:
        await self._clock.sleep(self._delay)
        requested, self._requested = self._requested, []
        try:
            names = await self._look_up(requested)
            if len(names) != len(requested):
                raise GraphileWorkerError(
                    f"{len(requested)} queue names were requested, {len(names)} were returned"
                )
        except Exception as error:
            self._reject(requested, error)
            return
        for queue_id, name in zip(requested, names, strict=True):
            if name is None:
                message = f"there is no queue with the id {queue_id}; was it removed by a cleanup?"
                self._reject([queue_id], InvalidArgumentError("queue id", message))
            else:
                self._cache(queue_id, name)

    def _cache(self, queue_id: int, name: str) -> None:
        if len(self._names) >= MAX_CACHED:
            del self._names[next(iter(self._names))]
        self._names[queue_id] = name
        future = self._waiting.pop(queue_id)
        if not future.done():
            future.set_result(name)

    def _reject(self, queue_ids: Sequence[int], error: Exception) -> None:
        for queue_id in queue_ids:
            future = self._waiting.pop(queue_id)
            if not future.done():
                future.set_exception(error)


def _mark_retrieved(future: asyncio.Future[str]) -> None:
    """Avoid asyncio's warning when all callers were cancelled and the error is never retrieved."""
    if not future.cancelled():
        future.exception()
