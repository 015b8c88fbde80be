"""Idempotency keys: a request that is sent twice takes effect once, and gets the same answer.

Answers are kept in memory for ten minutes. Several processes of the dashboard do not share them.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from starlette.responses import Response

from ..values.clock import Clock
from .answers import Problem

HEADER = "idempotency-key"
REPLAYED = "Idempotency-Replayed"
KEPT_FOR = 600.0
MAX_ENTRIES = 1000
MAX_BYTES = 16 * 1024 * 1024
_KEY = re.compile(r"[!-~]{1,200}")

Key = tuple[str, ...]
"""Who, about which database and path, and the key that was sent."""


@dataclass(slots=True, eq=False)
class _Answer:
    request: str
    """A hash of the body: the same key with another body is a mistake of the client."""
    expires: float
    is_done: asyncio.Event = field(default_factory=asyncio.Event)
    answer: tuple[int, dict[str, str], bytes] | None = None

    @property
    def size(self) -> int:
        return len(self.answer[2]) if self.answer is not None else 0

    def replay(self) -> Response:
        if self.answer is None:
            raise RuntimeError("there is no answer yet")
        status, headers, body = self.answer
        return Response(body, status, headers={**headers, REPLAYED: "true"})


class KeptAnswers:
    """The answers of requests with an idempotency key."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: OrderedDict[Key, _Answer] = OrderedDict()

    async def once(self, key: Key, body: bytes, make: Callable[[], Awaitable[Response]]) -> Response:
        """The answer of `make`, or the one that the same request got before.

        A duplicate that arrives while the first one is working waits for it. A request that failed is
        forgotten, so that it can be sent again.
        """
        if not _KEY.fullmatch(key[-1]):
            raise Problem(400, "The idempotency key is not valid", "Use 1 to 200 visible ASCII characters.")
        digest = hashlib.sha256(body).hexdigest()
        while (entry := self._find(key)) is not None:
            if entry.request != digest:
                raise Problem(
                    422, "This idempotency key was used for another request", "Make a new key for each one."
                )
            await entry.is_done.wait()
            if entry.answer is not None:
                return entry.replay()
        return await self._first(key, digest, make)

    async def _first(self, key: Key, digest: str, make: Callable[[], Awaitable[Response]]) -> Response:
        entry = _Answer(digest, self._clock.monotonic() + KEPT_FOR)
        self._entries[key] = entry
        try:
            response = await make()
            if response.status_code < 400:
                headers = {name: value for name, value in response.headers.items() if name != "set-cookie"}
                entry.answer = (response.status_code, headers, bytes(response.body))
            return response
        finally:
            if entry.answer is None:
                self._entries.pop(key, None)
            entry.is_done.set()
            self._shrink()

    def _find(self, key: Key) -> _Answer | None:
        entry = self._entries.get(key)
        if entry is not None and entry.is_done.is_set() and entry.expires <= self._clock.monotonic():
            del self._entries[key]
            return None
        return entry

    def _shrink(self) -> None:
        """Drop what has expired, then the oldest, except for requests that are still working."""
        now = self._clock.monotonic()
        done = [(key, entry) for key, entry in self._entries.items() if entry.is_done.is_set()]
        size = sum(entry.size for _, entry in done)
        for key, entry in done:
            if entry.expires > now and len(self._entries) <= MAX_ENTRIES and size <= MAX_BYTES:
                break
            del self._entries[key]
            size -= entry.size
