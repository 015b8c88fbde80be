"""What decides about the attempts of a job: Retry, Snooze, RetryIn, GiveUp, TimeLimit, Expiry.

`Retry` is how long to wait before the next attempt. A task raises or returns one of the next three to decide
how its job ends.

How long one attempt may run: a job says so itself with the flag `py:timeout=SECONDS`, its task with
`@task(timeout=…)`, and the worker with `job_timeout` for all others.

When a single job expires: it has the flag `py:expires=+SECONDS` or `py:expires=EPOCH`. With a plus sign it
counts from when the job could run, like the option of a task; without, it is a time in seconds since 1970.
The worker deletes an expired job instead of calling its task.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from ..errors import InvalidArgumentError
from .text import duration

MAX_DELAY = 100 * 366 * 86400.0  # seconds, a century
TIMEOUT_FLAG = "py:timeout="
EXPIRES_FLAG = "py:expires="


class JobDirective(Exception):
    """Base of what a task can raise or return to decide how its job ends."""


class _Later(JobDirective):
    """The job runs again at a time that the task chooses."""

    delay: float | None
    """Seconds from now; None if `until` is set."""
    until: datetime | None
    reason: str | None

    def __init__(
        self,
        delay: float | timedelta | None = None,
        reason: str | None = None,
        *,
        until: datetime | None = None,
    ) -> None:
        if (delay is None) is (until is None):
            raise InvalidArgumentError("delay", "expected a delay or until=, and not both")
        self.delay = None if delay is None else check_delay("delay", delay)
        self.until = None if until is None else _checked_time(until)
        self.reason = reason
        super().__init__(delay, reason)

    @property
    def _when(self) -> str:
        return f"at {self.until:%Y-%m-%d %H:%M:%S %Z}" if self.delay is None else f"in {duration(self.delay)}"

    def __reduce__(self) -> Any:
        return _restored, (type(self), self.delay, self.reason, self.until)


class Snooze(_Later):
    """Run the job again later; this attempt does not count.

    `Snooze(60)`, `Snooze(timedelta(hours=1))`, `Snooze(until=datetime(…))`. A time in the past means now.
    """

    def __str__(self) -> str:
        return self.reason or f"snoozed; runs again {self._when}"


class RetryIn(_Later):
    """Fail this attempt and retry the job after this delay instead of the back-off: `RetryIn(5)`.

    The attempt counts: after the last one the job fails permanently.
    """

    def __str__(self) -> str:
        return self.reason or f"retry requested {self._when}"


class GiveUp(JobDirective):
    """Fail the job permanently, whatever attempts are left: `GiveUp("the card is stolen")`."""

    def __init__(self, reason: str = "the task gave up") -> None:
        self.reason = reason
        super().__init__(reason)


def check_delay(argument: str, value: Any) -> float:
    """Seconds from a number or a timedelta; a negative delay is none."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or math.isnan(seconds):
        raise InvalidArgumentError(argument, f"expected seconds or a timedelta, got {value!r}")
    if seconds > MAX_DELAY:
        raise InvalidArgumentError(argument, f"expected at most a century, got {value!r}")
    return max(0.0, float(seconds))


def check_period(argument: str, value: Any) -> float:
    """The same for a period that must be longer than zero."""
    seconds = check_delay(argument, value)
    if seconds <= 0:
        raise InvalidArgumentError(argument, f"expected more than 0 seconds, got {value!r}")
    return seconds


def _checked_time(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise InvalidArgumentError("until", f"expected a datetime, got {value!r}")
    if value.utcoffset() is None:
        raise InvalidArgumentError(
            "until", f"{value!r} has no time zone; give it one, as in datetime.now(UTC)"
        )
    return value


def _restored(kind: type[_Later], delay: float | None, reason: str | None, until: datetime | None) -> _Later:
    return kind(delay, reason, until=until)


RetryFunction = Callable[[int, BaseException], float | timedelta]
"""Takes the number of the failed attempt, from 1, and its error; returns the delay."""


def back_off(attempts: int) -> float:
    """The default delay in seconds after this number of attempts; equal to the part `back_off` in SQL."""
    return math.exp(min(attempts, 10))


class Retry:
    """The delay before each retry: `@task(retry=Retry.exponential(first=1, longest=600))`.

    `Retry(function)` takes a function of the attempt (from 1) and the error. It is called on the event loop,
    so it must not block.
    """

    def __init__(self, function: RetryFunction) -> None:
        if not callable(function):
            raise InvalidArgumentError(
                "retry", f"expected a function of the attempt and the error, got {function!r}"
            )
        self._function = function

    @classmethod
    def exponential(
        cls,
        *,
        first: float | timedelta = 1.0,
        factor: float = 2.0,
        longest: float | timedelta = 3600.0,
        jitter: float = 0.1,
    ) -> Retry:
        """`first`, then `factor` times as long each time, up to `longest`.

        `jitter`: 0.1 makes each delay up to 10% shorter or longer, so that jobs that failed together are not
        retried together.
        """
        start, most = check_period("first", first), check_period("longest", longest)
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not factor >= 1:
            raise InvalidArgumentError("factor", f"expected a number of at least 1, got {factor!r}")
        growth, spread = float(factor), _checked_jitter(jitter)

        def delay(attempt: int, error: BaseException) -> float:
            try:
                grown = start * growth ** (attempt - 1)
            except OverflowError:
                grown = most
            return _spread(min(grown, most), spread)

        return cls(delay)

    @classmethod
    def fixed(cls, delay: float | timedelta, *, jitter: float = 0.0) -> Retry:
        """Always the same delay."""
        return cls.steps(delay, jitter=jitter)

    @classmethod
    def steps(cls, *delays: float | timedelta, jitter: float = 0.0) -> Retry:
        """These delays in turn; the last one repeats until no attempts are left."""
        if not delays:
            raise InvalidArgumentError("delays", "expected at least one delay")
        seconds, spread = [check_delay("delays", delay) for delay in delays], _checked_jitter(jitter)
        return cls(lambda attempt, error: _spread(seconds[min(attempt, len(seconds)) - 1], spread))

    def delay(self, attempt: int, error: BaseException) -> float:
        """Seconds after this attempt. Raises what the function raises, or InvalidArgumentError."""
        return check_delay("retry", self._function(attempt, error))


def _checked_jitter(jitter: float) -> float:
    if isinstance(jitter, bool) or not isinstance(jitter, int | float) or not 0 <= jitter <= 1:
        raise InvalidArgumentError("jitter", f"expected a number from 0 to 1, got {jitter!r}")
    return float(jitter)


def _spread(seconds: float, jitter: float) -> float:
    return seconds * random.uniform(1 - jitter, 1 + jitter) if jitter else seconds  # noqa: S311


# -- time limits and expiry ----------------------------------------------------------------------------------


class TimeLimit(msgspec.Struct, frozen=True):
    """How long one attempt may run, in seconds; None if the task does not say."""

    seconds: float | None = None
    waits: bool = False
    """Whether the slot waits for a task that does not end."""


NO_LIMIT = TimeLimit()


def timeout_flag(value: Any) -> str:
    """The flag of a job with this limit: seconds or a timedelta. Raises InvalidArgumentError."""
    return f"{TIMEOUT_FLAG}{check_period('timeout', value):.15g}"


def timeout_in(raw_flags: str) -> float | str | None:
    """The seconds that the flags of a job say; None if they say nothing, the flag itself if it is wrong."""
    if TIMEOUT_FLAG not in raw_flags:
        return None
    try:
        flags = msgspec.json.decode(raw_flags)
    except msgspec.DecodeError:
        return raw_flags
    found = [flag for flag in flags if flag.startswith(TIMEOUT_FLAG)] if isinstance(flags, dict) else []
    return _seconds(found[0]) if found else None


def _seconds(flag: str) -> float | str:
    try:
        seconds = float(flag.removeprefix(TIMEOUT_FLAG))
    except ValueError:
        return flag
    return seconds if 0 < seconds <= MAX_DELAY else flag


class Expiry(msgspec.Struct, frozen=True):
    """When a job expires."""

    seconds: float
    is_relative: bool
    """Whether it counts from when the job could run; otherwise it is a time, in seconds since 1970."""


def expiry_flag(value: datetime | timedelta) -> str:
    """The flag of a job that expires then. Raises InvalidArgumentError."""
    if isinstance(value, timedelta):
        return f"{EXPIRES_FLAG}+{check_period('expires', value):.15g}"
    if not isinstance(value, datetime):
        raise InvalidArgumentError("expires", f"expected a time or a timedelta, got {value!r}")
    if value.utcoffset() is None:
        raise InvalidArgumentError(
            "expires",
            f"{value!r} has no time zone; give it one, as in datetime.now(UTC), or give a timedelta",
        )
    return f"{EXPIRES_FLAG}{value.timestamp():.15g}"


def expiry_of(raw_flags: str | None) -> Expiry | None:
    """When the job with these flags expires; None if they do not say."""
    if raw_flags is None or EXPIRES_FLAG not in raw_flags:
        return None
    flags = msgspec.json.decode(raw_flags)
    found = [flag for flag in flags if flag.startswith(EXPIRES_FLAG)] if isinstance(flags, dict) else []
    return _parsed(found[0].removeprefix(EXPIRES_FLAG)) if found else None


def _parsed(text: str) -> Expiry | None:
    """None for a flag that another program got wrong, which must not fail the job."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return Expiry(seconds, text.startswith("+")) if math.isfinite(seconds) else None
