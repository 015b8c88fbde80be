"""Which database errors pass by themselves, how long to wait before trying again, and doing so.

Conflicts between transactions are over in a moment; a server that starts up or cannot be reached takes
longer; a connection that broke is replaced at once and then less and less often.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg
import msgspec

from .. import sqlstates
from ..clock import Clock
from .errors import is_dead_session, sqlstate_of

T = TypeVar("T")

MULTIPLIER = 1.5
MAX_ATTEMPTS = 100
CONFLICT_ATTEMPTS = 10
"""Of a call that its caller awaits; the delays before them add up to some four seconds."""


class Delays(msgspec.Struct, frozen=True):
    """Bounds of the waiting time in seconds; it grows from the first to the second."""

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
    """The growing delays of one loop that must go on; `reset` after a success."""

    def __init__(self, delays: Delays = BROKEN_CONNECTION) -> None:
        self._delays = delays
        self._failures = 0

    def next_delay(self, error: BaseException | None = None) -> float:
        """Seconds to wait after one more failure; the error's own bounds apply if it has some."""
        delays = (delays_for(error) if error is not None else None) or self._delays
        delay = retry_delay(self._failures, delays)
        self._failures += 1
        return delay

    def reset(self) -> None:
        """Begin with the shortest delay again."""
        self._failures = 0


def delays_for(error: BaseException) -> Delays | None:
    """How to wait after this error, or None if trying again would not help; looks at its causes too."""
    seen: BaseException | None = error
    while seen is not None:
        found = _delays_for_one(seen)
        if found is not None:
            return found
        seen = seen.__cause__
    return None


def is_retryable(error: BaseException) -> bool:
    """Whether the same statement may well succeed later."""
    return delays_for(error) is not None


def is_connection_lost(error: BaseException) -> bool:
    """Whether the connection that raised this is of no more use."""
    return delays_for(error) in (BROKEN_CONNECTION, UNREACHABLE) and sqlstate_of(error) not in (
        sqlstates.READ_ONLY_SQL_TRANSACTION,
        sqlstates.TOO_MANY_CONNECTIONS,
    )


def is_refusal(error: BaseException) -> bool:
    """Whether a statement failed because of the values in it, so that others in its place might succeed.

    Not so if the server is away, busy, full or starting, if the connection broke, or if tables or rights are
    missing. But whatever is raised inside a trigger, which has a context, may be about one row alone.
    """
    if delays_for(error) is not None:
        return False
    code = sqlstate_of(error)
    if code is None:
        is_driver = isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError)
        return not is_driver or isinstance(error, ValueError)  # the driver's DataError is one
    if code in _TOO_MUCH or getattr(error, "context", None):
        return True
    if code == sqlstates.INSUFFICIENT_PRIVILEGE:  # row security has the same code as a missing grant
        return getattr(error, "server_source_function", None) not in _MISSING_GRANT
    return code[:2] not in _NOT_ABOUT_VALUES


def may_pass(error: BaseException) -> bool:
    """Whether a refusal may be over later: the statement took too long, or more memory than there was."""
    return sqlstate_of(error) in _TOO_MUCH


def retry_delay(
    previous: int, delays: Delays, *, jitter: Callable[[float, float], float] = random.uniform
) -> float:
    """Seconds to wait after `previous` earlier failures, spread so that many clients do not march in step."""
    # The exponent is bounded because 1.5 to the power of a few thousand is no float.
    grown = delays.min_delay * MULTIPLIER ** min(previous, 100)
    return min(grown, delays.max_delay) * jitter(0.5, 1.5)


def is_conflict(error: BaseException) -> bool:
    """Whether the server undid a transaction because of another one: nothing of it has happened."""
    return sqlstate_of(error) in _UNDONE


async def past_conflicts(operation: Callable[[], Awaitable[T]], *, clock: Clock, failures: int = 0) -> T:
    """The result of `operation`, a transaction of its own, tried again when another one was in its way.

    `failures` are those that there were before.
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
    """The result of `operation`, tried again after errors that pass; others are raised at once.

    `fallback` makes every other error retryable too; `on_retry` hears of the error, how many tries there
    were, and the delay. The last error is raised when `max_attempts` tries have failed.
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
