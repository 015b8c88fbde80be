"""Limits attempts to sign in: pauses that grow with failures, and few computations at a time."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from ..values.clock import Clock
from ..values.text import duration
from .answers import Problem

FREE_ATTEMPTS = 5
"""Failures of an address or a user before the first pause."""
LONGEST_PAUSE = 60.0
FORGOTTEN_AFTER = 900.0
"""Seconds after the last failure."""
MAX_ENTRIES = 10_000
COMPUTED_AT_ONCE = 2
MAX_WAITING = 20
"""Attempts that wait for a computation; more are refused."""


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last: float = 0.0
    until: float = 0.0


class SignInAttempts:
    """Failures by address and by user, in memory. The oldest entries are dropped when there are too many."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, _Failures] = OrderedDict()

    def begin(self, keys: Sequence[str]) -> None:
        """Count an attempt as failed before it is checked, so that many at once do not all get through.

        Raises a problem while one of the keys is paused.
        """
        now = self._clock.monotonic()
        wait = max((self._failures[key].until - now for key in keys if key in self._failures), default=0.0)
        if wait > 0:
            seconds = int(wait) + 1
            again = f"Try again in {duration(seconds)}."
            raise Problem(429, "Too many attempts to sign in", again, retry_after=seconds)
        for key in keys:
            self._count(key, now)

    def succeeded(self, keys: Sequence[str]) -> None:
        """Forget the failures of these keys."""
        for key in keys:
            self._failures.pop(key, None)

    def _count(self, key: str, now: float) -> None:
        entry = self._failures.pop(key, None)
        if entry is None or now - entry.last > FORGOTTEN_AFTER:
            entry = _Failures()
        entry.count += 1
        entry.last = now
        if entry.count >= FREE_ATTEMPTS:
            entry.until = now + min(LONGEST_PAUSE, 2.0 ** (entry.count - FREE_ATTEMPTS))
        self._failures[key] = entry
        while len(self._failures) > MAX_ENTRIES:
            self._failures.popitem(last=False)


class Computations:
    """A password takes memory and time to check, so only a few are checked at a time."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(COMPUTED_AT_ONCE)
        self.waiting = 0

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        if self.waiting >= MAX_WAITING:
            raise Problem(503, "Too many people sign in at the moment", "Try again.", retry_after=2)
        self.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            self._slots.release()


def address_key(address: str) -> str:
    """The key of an address. One person has a whole /64 of IPv6, so that counts as one."""
    try:
        found = ip_address(address)
    except ValueError:
        return f"address {address}"
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return f"address {int(found) >> 64:x}/64"
    return f"address {getattr(found, 'ipv4_mapped', None) or found}"
