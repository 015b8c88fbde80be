"""Which database errors are transient, the back-off for each, and retries.

Conflicts between transactions pass in a moment; a server that is starting or unreachable takes longer; a
broken connection is replaced at once, then with growing delays.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg
import msgspec

from ...values.clock import Clock
from . import sqlstates
from .errors import is_dead_session, sqlstate_of

T = TypeVar("T")

MULTIPLIER = 1.5
MAX_ATTEMPTS = 100
CONFLICT_ATTEMPTS = 10
"""For a call that its caller awaits; the delays add up to about four seconds."""


class Delays(msgspec.Struct, frozen=True):
    """The first and the largest delay in seconds."""

    min_delay: float
    max_delay: float


CONFLICT = Delays(0.05, 5.0)
UNREACHABLE = Delays(3.0, 120.0)
BROKEN_CONNECTION = Delays(0.2, 30.0)

_BY_SQLSTATE = {
    sqlstates.SERIALIZATION_FAILURE: CONFLICT,
    sqlstates.DEADLOCK_DETECTED: CONFLICT,
    sqlstates.LOCK_NOT_AVAILABLE: CONFLICT,
    sqlstates.CANNOT_CONNECT_NOW: UNREACHABLE,  # the server starts up or shuts down
    sqlstates.ADMIN_SHUTDOWN: BROKEN_CONNECTION,  # the backend was terminated, or the server stops
    sqlstates.CRASH_SHUTDOWN: BROKEN_CONNECTION,  # another backend crashed
    sqlstates.IDLE_SESSION_TIMEOUT: BROKEN_CONNECTION,
    sqlstates.READ_ONLY_SQL_TRANSACTION: BROKEN_CONNECTION,  # the old primary after a failover
    sqlstates.TOO_MANY_CONNECTIONS: BROKEN_CONNECTION,
}
_TOO_MUCH = (sqlstates.QUERY_CANCELED, sqlstates.OUT_OF_MEMORY)  # half of the batch may do
_MISSING_GRANT = ("aclcheck_error", "aclcheck_error_col")
# Connections, features, rights and sessions, transactions, names and types, resources, operators, the system.
_NOT_ABOUT_VALUES = frozenset({"08", "0A", "25", "26", "28", "34", "3D", "3F", "42", "53", "55", "57", "58"})
_UNDONE = (sqlstates.SERIALIZATION_FAILURE, sqlstates.DEADLOCK_DETECTED)
_UNREACHABLE_ERRNO = (errno.EHOSTUNREACH, errno.ETIMEDOUT)


class Backoff:
    """The growing delays of a loop that never gives up; `reset` after a success."""

    def __init__(self, delays: Delays = BROKEN_CONNECTION) -> None:
        self._delays = delays
        self._failures = 0

    def next_delay(self, error: BaseException | None = None) -> float:
        """Seconds to wait after another failure; bounds specific to the error take precedence."""
        delays = (delays_for(error) if error is not None else None) or self._delays
        delay = retry_delay(self._failures, delays)
        self._failures += 1
        return delay

    def reset(self) -> None:
        """Start again with the shortest delay."""
        self._failures = 0


def delays_for(error: BaseException) -> Delays | None:
    """The back-off for this error or one of its causes; None if it is not transient."""
    seen: BaseException | None = error
    while seen is not None:
        found = _delays_for_one(seen)
        if found is not None:
            return found
        seen = seen.__cause__
    return None


def is_retryable(error: BaseException) -> bool:
    """Whether the same statement may succeed later."""
    return delays_for(error) is not None


def is_refusal(error: BaseException) -> bool:
    """Whether a statement failed because of its values, so that it might succeed with others.

    False if the server is down, busy, full or starting, if the connection broke, or if tables or permissions
    are missing. But an error raised inside a trigger, which has a context, may concern a single row.
    """
    if delays_for(error) is not None:
        return False
    code = sqlstate_of(error)
    if code is None:
        is_driver = isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError)
        return not is_driver or isinstance(error, ValueError)  # the driver's DataError is one
    if code in _TOO_MUCH or getattr(error, "context", None):
        return True
    if code == sqlstates.INSUFFICIENT_PRIVILEGE:  # row-level security has the same code as a missing grant
        return getattr(error, "server_source_function", None) not in _MISSING_GRANT
    return code[:2] not in _NOT_ABOUT_VALUES


def may_pass(error: BaseException) -> bool:
    """Whether a refusal may be temporary: the statement took too long or too much memory."""
    return sqlstate_of(error) in _TOO_MUCH


def retry_delay(
    previous: int, delays: Delays, *, jitter: Callable[[float, float], float] = random.uniform
) -> float:
    """Seconds to wait after `previous` earlier failures, with jitter."""
    # The exponent is bounded: 1.5 to the power of a few thousand overflows a float.
    grown = delays.min_delay * MULTIPLIER ** min(previous, 100)
    return min(grown, delays.max_delay) * jitter(0.5, 1.5)


def is_conflict(error: BaseException) -> bool:
    """Whether the server rolled back a transaction because of another one."""
    return sqlstate_of(error) in _UNDONE


async def past_conflicts(operation: Callable[[], Awaitable[T]], *, clock: Clock, failures: int = 0) -> T:
    """The result of `operation`, a transaction of its own, retried after conflicts.

    `failures`: how many attempts have failed before.
    """
    while True:
        if failures:
            await clock.sleep(retry_delay(failures - 1, CONFLICT))
        try:
            return await operation()
        except Exception as error:
            failures += 1
            if failures >= CONFLICT_ATTEMPTS or not is_conflict(error):
                raise


async def with_retries(
    operation: Callable[[], Awaitable[T]],
    *,
    clock: Clock,
    max_attempts: int = MAX_ATTEMPTS,
    fallback: Delays | None = None,
    on_retry: Callable[[BaseException, int, float], None] | None = None,
) -> T:
    """The result of `operation`, retried after transient errors; others are raised at once.

    `fallback` makes every other error retryable too. `on_retry` gets the error, the number of failed attempts
    and the delay. The last error is raised after `max_attempts`.
    """
    failures = 0
    while True:
        try:
            return await operation()
        except Exception as error:
            delays = delays_for(error) or fallback
            if delays is None or failures + 1 >= max_attempts:
                raise
            delay = retry_delay(failures, delays)
            failures += 1
            if on_retry is not None:
                on_retry(error, failures, delay)
        await clock.sleep(delay)


def _delays_for_one(error: BaseException) -> Delays | None:
    code = sqlstate_of(error)
    if code is not None:
        return _BY_SQLSTATE.get(code) or (BROKEN_CONNECTION if code.startswith("08") else None)
    if isinstance(error, OSError):
        is_unreachable = isinstance(error, TimeoutError) or error.errno in _UNREACHABLE_ERRNO
        return UNREACHABLE if is_unreachable else BROKEN_CONNECTION
    if is_dead_session(error) or isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return BROKEN_CONNECTION
    if isinstance(error, asyncpg.InterfaceError) and "closed" in str(error):
        return BROKEN_CONNECTION  # for instance "connection was closed in the middle of operation"
    return None
