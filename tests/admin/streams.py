"""Reading server-sent events from the application, without a network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from graphile_worker.admin import AdminApp
from support.working import PATIENCE


class ReceivedEvent(NamedTuple):
    name: str
    data: Any
    id: str


class Reader:
    """One open stream."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._started = asyncio.Event()
        self._events: asyncio.Queue[ReceivedEvent | None] = asyncio.Queue()
        self._text = ""

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            self._started.set()
        else:
            self._text += message.get("body", b"").decode()
            self._split()
            if not message.get("more_body"):
                self._events.put_nowait(None)

    async def next(self, *names: str) -> ReceivedEvent:
        """The next event with one of these names, or any."""
        async with asyncio.timeout(PATIENCE):
            while (event := await self._events.get()) is not None:
                if not names or event.name in names:
                    return event
        raise EOFError("the stream ended")

    async def end(self) -> None:
        """Wait until the application ends the stream."""
        async with asyncio.timeout(PATIENCE):
            while await self._events.get() is not None:
                pass

    async def started(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self._started.wait()

    def _split(self) -> None:
        *whole, self._text = self._text.split("\n\n")
        for block in whole:
            fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            if fields.get("event", "alive") != "alive":
                event = ReceivedEvent(fields["event"], json.loads(fields["data"]), fields["id"])
                self._events.put_nowait(event)


def stream_scope(topics: str = "overview", *, last_id: str | None = None) -> dict[str, Any]:
    """A request for live updates."""
    headers = [(b"host", b"localhost"), (b"sec-fetch-site", b"same-origin")]
    if last_id is not None:
        headers.append((b"last-event-id", last_id.encode()))
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": "/api/v1/events", "raw_path": b"/api/v1/events", "root_path": "", "headers": headers,
        "query_string": f"topics={topics}".encode(), "client": ("127.0.0.1", 1), "server": ("localhost", 80),
    }  # fmt: skip


@asynccontextmanager
async def reading(
    app: AdminApp, topics: str = "overview", *, last_id: str | None = None
) -> AsyncIterator[Reader]:
    """Open a stream; the browser leaves at the end."""
    reader = Reader()
    left = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    task = asyncio.create_task(app(stream_scope(topics, last_id=last_id), receive, reader.send))
    try:
        await reader.started()
        yield reader
    finally:
        left.set()
        async with asyncio.timeout(PATIENCE):
            await task
