"""What runs on a machine of the Ray cluster: one call, and the actor that carries its notes.

Ray imports this module by its name. It has no messages between a driver and its running tasks, so a `Mailbox`
carries notes of calls to the driver, and requests to calls. The actor uses no processor, and lives on the
node of the driver: when it is lost, so is the connection to the cluster.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from typing import Any

import msgspec
import ray

from ...executors.cluster import run_there, running_call
from ...executors.messages import Ask, ClusterNote, StackNote


def run_on_cluster(data: bytes, number: int, mailbox: Any) -> tuple[int, bytes]:
    """Run a call here; how many notes it has sent, and its answer as JSON."""
    sent = 0

    def send(note: ClusterNote) -> None:
        nonlocal sent
        sent += 1
        mailbox.note.options(num_returns=0).remote(number, msgspec.json.encode(note))

    def listen() -> None:
        mailbox.next_request.remote(number).future().add_done_callback(obey)

    def obey(request: Any) -> None:
        if request.exception() is not None or not (raw := request.result()):
            return
        ask = msgspec.json.decode(raw, type=Ask)
        running = running_call(str(number))
        if running is None:
            return
        if ask.what == "stack":
            send(StackNote(number, running.stack()))
        else:
            running.abort(ask.reason, cancels=ask.what == "cancel")
        listen()

    listen()
    util: Any = ray.util
    place = f"{util.get_node_ip_address()}, process {os.getpid()}"
    answer = run_there(data, str(number), place, send)
    return sent, answer


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
