"""Mailbox: an actor on the cluster. It carries notes of calls to the driver, and requests to calls.

Ray has no messages between a driver and its running tasks. The actor uses no processor, and lives on the node
of the driver: when it is lost, so is the connection to the cluster.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

MOST_ENDED = 10_000
"""Calls whose end is remembered, because they may still ask for requests."""


class Mailbox:
    """An asynchronous actor; everything happens in its event loop."""

    def __init__(self) -> None:
        self._notes: list[tuple[int, bytes]] = []
        self._arrived = asyncio.Event()
        self._requests: dict[int, asyncio.Queue[bytes]] = {}
        self._ended: OrderedDict[int, None] = OrderedDict()

    async def note(self, number: int, note: bytes) -> None:
        """From a call: tell the worker."""
        self._notes.append((number, note))
        self._arrived.set()

    async def take(self) -> list[tuple[int, bytes]]:
        """To the driver: the notes that have arrived; waits for one."""
        await self._arrived.wait()
        self._arrived.clear()
        notes, self._notes = self._notes, []
        return notes

    async def ask(self, number: int, request: bytes) -> None:
        """From the driver: a request to a call."""
        self._queue(number).put_nowait(request)

    async def next_request(self, number: int) -> bytes:
        """To a call: the next request; empty when the call has ended."""
        if number in self._ended:
            del self._ended[number]
            return b""
        return await self._queue(number).get()

    async def end(self, number: int) -> None:
        """From the driver: a call has ended."""
        queue = self._requests.pop(number, None)
        if queue is not None:
            queue.put_nowait(b"")
        else:  # it has not asked yet, or never will
            self._ended[number] = None
            if len(self._ended) > MOST_ENDED:
                self._ended.popitem(last=False)

    def _queue(self, number: int) -> asyncio.Queue[bytes]:
        return self._requests.setdefault(number, asyncio.Queue())
