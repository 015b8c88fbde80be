"""Lease: whether this pool may still lock jobs and write outcomes, or may already have lost its jobs.

A registered pool holds a lease. Each heartbeat that reaches the database renews it, and it ends well before
another worker may recover the pool's jobs. While it has lapsed, nothing is fetched or written. Heartbeats
arrive from any thread; everything else happens on the pool's event loop. A pool that is not registered cannot
be declared dead and needs no lease: it is always open.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from contextlib import suppress

from ..values.clock import uptime


class Lease:
    """Open until it lapses; opens again when the pool has found out which jobs it still has."""

    def __init__(self, on_lapse: Callable[[], None] = lambda: None) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_lapse = on_lapse
        self._mutex = threading.Lock()
        self._term = math.inf
        self._ends = math.inf
        self._settled = True
        self._waiters: set[asyncio.Future[None]] = set()
        self.epoch = 0
        """Incremented whenever it becomes uncertain what the pool has locked."""

    @property
    def is_open(self) -> bool:
        """Whether jobs may be touched now."""
        return self._settled and uptime() < self._ends

    @property
    def is_in_doubt(self) -> bool:
        """Whether the pool has yet to find out what it still has."""
        return not self._settled

    @property
    def age(self) -> float:
        """Seconds since the last heartbeat that reached the database; infinite if there was none."""
        return math.inf if self._ends == math.inf else uptime() - (self._ends - self._term)

    async def passed(self) -> None:
        """Wait until the lease is open."""
        while not self.is_open:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)

    # -- from any thread -----------------------------------------------------------------------------------

    def begin(self, term: float, since: float) -> None:
        """Require a lease of `term` seconds from each heartbeat; the first one was sent at `since`."""
        with self._mutex:
            self._term, self._ends = term, since + term

    def renew(self, since: float, *, was_swept: bool = False) -> None:
        """A heartbeat sent at `since` has arrived; `was_swept` if the pool had been declared dead."""
        with self._mutex:
            lapsed = was_swept or uptime() >= self._ends
            continues = not lapsed and self._ends < math.inf
            self._ends = max(self._ends, since + self._term) if continues else since + self._term
            if lapsed:
                self.epoch += 1
                self._settled = False
        self._call_on_loop(self._on_lapse if lapsed else self._wake)

    def suspend(self) -> None:
        """Require no lease until the next heartbeat: the pool cannot be declared dead for now."""
        with self._mutex:
            self._ends = math.inf
        self._call_on_loop(self._wake)

    def _call_on_loop(self, function: Callable[[], None]) -> None:
        """Raises RuntimeError if the loop is closed, and the pool with it."""
        self._loop.call_soon_threadsafe(function)

    # -- on the loop ---------------------------------------------------------------------------------------

    def doubt(self) -> None:
        """Find out what the pool has locked, whatever the lease says; no-op while that is in progress."""
        with self._mutex:
            if not self._settled:
                return
            self.epoch += 1
            self._settled = False
        self._on_lapse()

    def settle(self, epoch: int) -> None:
        """The pool knows what it has; reopen unless that became uncertain again since `epoch`."""
        with self._mutex:
            if epoch == self.epoch:
                self._settled = True
        self._wake()

    def _wake(self) -> None:
        if self.is_open:
            for waiter in self._waiters:
                with suppress(asyncio.InvalidStateError):
                    waiter.set_result(None)
