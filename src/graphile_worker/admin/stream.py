"""Stream: what one browser tab is told. It holds the latest of each kind, so a slow reader costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec

RETRY = 2000
"""Milliseconds after which a browser connects again."""


class StreamEvent(msgspec.Struct, frozen=True):
    """One event, before it is written."""

    name: str
    data: Any
    id: int

    def encoded(self) -> bytes:
        """As server-sent events are written. JSON has no line breaks."""
        data = msgspec.json.encode(self.data).decode()
        return f"event: {self.name}\nid: {self.id}\ndata: {data}\n\n".encode()


class Stream:
    """The events of one subscriber, in the order in which they first occurred."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)
        self._pending: dict[str, StreamEvent] = {}
        self._changed: set[str] = set()
        self._wake = asyncio.Event()
        self.is_closed = False

    def put(self, event: StreamEvent) -> None:
        """Replace the event of the same name that has not been read yet."""
        self._pending[event.name] = event
        self._wake.set()

    def put_changed(self, topics: Iterable[str], id: int) -> None:
        """Say that these topics changed, as far as the subscriber wants to know."""
        wanted = self.topics.intersection(topics)
        if wanted:
            self._changed |= wanted
            self.put(StreamEvent("changed", {"topics": sorted(self._changed)}, id))

    def close(self) -> None:
        """End the stream after what is pending."""
        self.is_closed = True
        self._wake.set()

    async def next(self, timeout: float) -> list[StreamEvent]:
        """What is new; empty after the timeout, or when the stream is closed."""
        if not self._pending and not self.is_closed:
            try:
                async with asyncio.timeout(timeout):
                    await self._wake.wait()
            except TimeoutError:
                return []
        self._wake.clear()
        events, self._pending = list(self._pending.values()), {}
        self._changed.clear()
        return events
