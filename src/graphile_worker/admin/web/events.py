"""`/api/v1/events`: live updates as server-sent events.

Events: `hello` at once, with the topics; `overview` with a sample; `changed` with the topics that changed,
which the reader then fetches; `down` and `up` for the database; `alive` when there was nothing else for some
seconds, so that a reader knows that the server is there, and proxies do not take the stream for a dead one.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ..answers import Problem
from ..live.hub import RETRY, Stream, hubs_of
from .call import Call
from .routes import API, Route

ALIVE_EVERY = 5.0
"""Seconds."""
MAX_TOPICS = 20
HEADERS = {
    "Cache-Control": "no-store, no-transform",
    "X-Accel-Buffering": "no",  # for nginx
}
_TOPIC = re.compile(
    "overview|jobs|failures|tasks|queues|workers|schedules|doctor|audit|operations|banners"
    "|(?:job|operation):[0-9]{1,18}"
)


class EventsQuery(msgspec.Struct):
    """What a reader wants to hear of."""

    topics: str = "overview"
    """Separated by commas: `overview`, `jobs`, `failures`, `tasks`, `queues`, `workers`, `schedules`,
    `operations`, `audit`, `job:123`, `operation:7`."""


class EventStream(StreamingResponse):
    """Ends its stream in any case: a reader may be gone before the first line is written."""

    def __init__(self, call: Call, stream: Stream) -> None:
        super().__init__(_lines(call, stream), headers=HEADERS, media_type="text/event-stream")
        self._hubs, self._stream = hubs_of(call.app), stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._hubs.end(self._stream)


async def events(call: Call, wanted: EventsQuery) -> EventStream:
    topics = _topics(wanted.topics)
    opened = hubs_of(call.app).stream(call.database, topics, user=call.identity.name, last_id=_last_id(call))
    return EventStream(call, opened)


def _topics(text: str) -> list[str]:
    topics = [topic for topic in text.split(",") if topic]
    unknown = [topic for topic in topics if not _TOPIC.fullmatch(topic)]
    if unknown:
        raise Problem(400, "A topic is not known", f"{unknown[0][:60]!r} is not a topic.")
    if not topics or len(topics) > MAX_TOPICS:
        raise Problem(400, "The number of topics is not valid", f"Give 1 to {MAX_TOPICS} topics.")
    return topics


def _last_id(call: Call) -> int | None:
    given = call.request.headers.get("last-event-id", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 16 else None


async def _lines(call: Call, stream: Stream) -> AsyncIterator[bytes]:
    """Everything that the stream gets, until it, the session or the reader ends."""
    yield f"retry: {RETRY}\n\n".encode()
    while (left := _time_left(call)) > 0 and await call.app.still_knows(call):
        found = await stream.next(min(ALIVE_EVERY, left))
        for event in found:
            yield event.encoded()
        if stream.is_closed:
            return
        if not found:
            yield b"event: alive\ndata: {}\n\n"


def _time_left(call: Call) -> float:
    """Seconds until the session ends."""
    end = call.identity.expires_at
    return ALIVE_EVERY if end is None else end.timestamp() - time.time()


ROUTES = [
    Route(
        f"{API}/events", events, "jobs.read", "Live updates, as server-sent events", streams=True,
        own_pages_only=True,
    ),
]  # fmt: skip
