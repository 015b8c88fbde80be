"""Meter: what the dashboard itself costs the database."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from ...database.connections.connection import Connection

PERIOD = 60.0  # seconds


class Cost(msgspec.Struct, frozen=True):
    """Statements of the dashboard in the last minute, and the time until their results were here.

    The server itself took less: the network and this process are part of it.
    """

    statements: int
    milliseconds: float

    def __str__(self) -> str:
        noun = "statement" if self.statements == 1 else "statements"
        sent = f"{self.statements:,} {noun} in the last minute"
        return f"{sent}, at most {self.milliseconds:,.0f} ms of database time"


class Meter:
    """Counts the statements of the last minute, by second."""

    def __init__(self, uptime: Callable[[], float] = time.monotonic) -> None:
        self._uptime = uptime
        self._seconds: deque[tuple[int, int, float]] = deque()
        self.total = 0
        """Statements since the start."""

    def add(self, seconds: float) -> None:
        """Count one statement that took so long."""
        self.total += 1
        now = int(self._uptime())
        if self._seconds and self._seconds[-1][0] == now:
            _, count, before = self._seconds.pop()
            self._seconds.append((now, count + 1, before + seconds))
        else:
            self._seconds.append((now, 1, seconds))
            self._forget()

    @property
    def cost(self) -> Cost:
        """The statements of the last minute."""
        self._forget()
        return Cost(
            sum(count for _, count, _ in self._seconds), sum(spent for *_, spent in self._seconds) * 1000
        )

    @contextmanager
    def counting(self, connection: Connection) -> Iterator[None]:
        """Count what is sent on this connection, if its driver can tell."""
        add_logger: Callable[[Any], None] | None = getattr(connection, "add_query_logger", None)
        if add_logger is None:
            yield
            return
        add_logger(self._note)
        try:
            yield
        finally:
            with suppress(Exception):  # a connection that was lost refuses, and needs no removing
                connection.remove_query_logger(self._note)  # type: ignore[attr-defined]

    def _note(self, query: Any) -> None:
        self.add(query.elapsed)

    def _forget(self) -> None:
        oldest = self._uptime() - PERIOD
        while self._seconds and self._seconds[0][0] < oldest:
            self._seconds.popleft()
