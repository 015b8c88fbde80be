"""Which errors pass by themselves, and how long to wait for that."""

from __future__ import annotations

import asyncio
import errno
from datetime import UTC, datetime

import asyncpg
import pytest

from graphile_worker.database.connections.retry import (
    BROKEN_CONNECTION,
    CONFLICT,
    UNREACHABLE,
    Backoff,
    Delays,
    delays_for,
    is_retryable,
    retry_delay,
    with_retries,
)
from graphile_worker.errors import ConnectionFailedError, InvalidArgumentError
from support.cases import looped


class CountingClock:
    """A clock that does not wait and remembers what it was asked for."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@looped(
    ("error", "delays"),
    [
        (asyncpg.SerializationError(), CONFLICT),
        (asyncpg.DeadlockDetectedError(), CONFLICT),
        (asyncpg.CannotConnectNowError(), UNREACHABLE),
        (OSError(errno.EHOSTUNREACH, "no route"), UNREACHABLE),
        (TimeoutError(), UNREACHABLE),
        (ConnectionRefusedError(), BROKEN_CONNECTION),
        (asyncpg.AdminShutdownError(), BROKEN_CONNECTION),
        (asyncpg.ReadOnlySQLTransactionError(), BROKEN_CONNECTION),
        (asyncpg.ConnectionDoesNotExistError(), BROKEN_CONNECTION),
        (asyncpg.InterfaceError("connection is closed"), BROKEN_CONNECTION),
        (asyncpg.InternalClientError("cannot switch to state 12; another operation"), BROKEN_CONNECTION),
        (asyncpg.InternalClientError("something else"), None),
        (asyncpg.UndefinedTableError(), None),
        (asyncpg.InterfaceError("cannot perform operation: another operation is in progress"), None),
        (ValueError(), None),
        (InvalidArgumentError("payload", "no"), None),
    ],
)
def test_errors_that_pass_by_themselves_have_their_delays(error: Exception, delays: Delays | None) -> None:
    assert delays_for(error) == delays
    assert is_retryable(error) == (delays is not None)


def test_our_own_errors_are_judged_by_their_cause() -> None:
    error = ConnectionFailedError("cannot be reached")
    error.__cause__ = ConnectionRefusedError()
    assert is_retryable(error)


def test_delays_grow_by_half_up_to_the_limit_and_are_spread() -> None:
    delays = Delays(0.05, 5.0)
    plain = [retry_delay(previous, delays, jitter=lambda low, high: 1.0) for previous in (0, 1, 2, 50, 9999)]
    assert plain == pytest.approx([0.05, 0.075, 0.1125, 5.0, 5.0])
    spread = [retry_delay(0, Delays(1, 1)) for _ in range(200)]
    assert 0.5 <= min(spread) < 0.7
    assert 1.3 < max(spread) <= 1.5


async def test_with_retries_tries_until_it_works() -> None:
    clock = CountingClock()
    heard: list[tuple[str, int]] = []
    failures: list[Exception] = [asyncpg.DeadlockDetectedError("a"), asyncpg.SerializationError("b")]

    async def operation() -> str:
        if failures:
            raise failures.pop(0)
        return "done"

    result = await with_retries(
        operation, clock=clock, on_retry=lambda error, tries, delay: heard.append((str(error), tries))
    )
    assert result == "done"
    assert heard == [("a", 1), ("b", 2)]
    assert 0.025 <= clock.slept[0] <= 0.075
    assert 0.0375 <= clock.slept[1] <= 0.1125


async def test_with_retries_gives_up_after_so_many_tries() -> None:
    clock = CountingClock()

    async def operation() -> None:
        raise asyncpg.DeadlockDetectedError("again")

    with pytest.raises(asyncpg.DeadlockDetectedError):
        await with_retries(operation, clock=clock, max_attempts=100)
    assert len(clock.slept) == 99


async def test_other_errors_are_raised_at_once_unless_a_fallback_is_given() -> None:
    clock = CountingClock()

    async def operation() -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        await with_retries(operation, clock=clock)
    assert clock.slept == []
    with pytest.raises(ValueError, match="wrong"):
        await with_retries(operation, clock=clock, max_attempts=3, fallback=Delays(1, 1))
    assert len(clock.slept) == 2


async def test_cancelling_is_never_taken_for_a_failure() -> None:
    async def operation() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await with_retries(operation, clock=CountingClock(), fallback=Delays(1, 1))


def test_a_backoff_grows_until_it_is_reset() -> None:
    backoff = Backoff(Delays(1, 1000))
    for _ in range(10):
        late = backoff.next_delay()
    assert late > 10
    backoff.reset()
    assert backoff.next_delay() <= 1.5
    assert backoff.next_delay(asyncpg.DeadlockDetectedError()) < 0.2
