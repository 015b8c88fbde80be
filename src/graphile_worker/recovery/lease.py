"""Lease: whether this pool may still lock jobs and write outcomes, or others may have taken its jobs by now.

A pool that can be taken for dead holds a lease: every sign of life that reached the database prolongs it, and
it ends well before anybody may give the pool's jobs away. While it has ended nothing is fetched or written.
Signs of life come from any thread; all else happens on the event loop of the pool. Without a lease, because
nobody would take the pool for dead, the lease is open.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from contextlib import suppress

from ..clock import uptime


class Lease:
    """Open while the lease lasts; after it ended, when the pool has found out what it still holds."""

    def __init__(self, on_lapse: Callable[[], None] = lambda: None) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_lapse = on_lapse
        self._mutex = threading.Lock()
        self._term = math.inf
        self._ends = math.inf
        self._settled = True
        self._waiters: set[asyncio.Future[None]] = set()
        self.epoch = 0
        """Counts how often it is in doubt what the pool holds."""

    @property
    def is_open(self) -> bool:
        """Whether jobs may be touched now."""
        return self._settled and uptime() < self._ends

    @property
    def is_in_doubt(self) -> bool:
        """Whether the pool has yet to find out what it still holds."""
        return not self._settled

    async def passed(self) -> None:
        """Until it is open."""
        while not self.is_open:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)

    # -- from any thread -----------------------------------------------------------------------------------

    def begin(self, term: float, since: float) -> None:
        """From now on a lease counts: of so many seconds from each sign of life, the first one at `since`."""
        with self._mutex:
            self._term, self._ends = term, since + term

    def prolong(self, since: float, *, was_swept: bool = False) -> None:
        """A sign of life, sent at `since`, has arrived; `was_swept` if the pool was taken for dead before."""
        with self._mutex:
            lapsed = was_swept or uptime() >= self._ends
            goes_on = not lapsed and self._ends < math.inf
            self._ends = max(self._ends, since + self._term) if goes_on else since + self._term
            if lapsed:
                self.epoch += 1
                self._settled = False
        self._tell(self._on_lapse if lapsed else self._wake)

    def lift(self) -> None:
        """There is no lease until the next sign of life: nobody can take the pool for dead now."""
        with self._mutex:
            self._ends = math.inf
        self._tell(self._wake)

    def _tell(self, function: Callable[[], None]) -> None:
        """Have it called on the loop; RuntimeError if that has ended, and with it the pool."""
        self._loop.call_soon_threadsafe(function)

    # -- on the loop ---------------------------------------------------------------------------------------

    def doubt(self) -> None:
        """Whatever the lease says: let it be found out what the pool holds, if nobody is about to."""
        with self._mutex:
            if not self._settled:
                return
            self.epoch += 1
            self._settled = False
        self._on_lapse()

    def settle(self, epoch: int) -> None:
        """What the pool holds was found out; unless it is in doubt again, the lease may open."""
        with self._mutex:
            if epoch == self.epoch:
                self._settled = True
        self._wake()

    def _wake(self) -> None:
        if self.is_open:
            for waiter in self._waiters:
                with suppress(asyncio.InvalidStateError):
                    waiter.set_result(None)
