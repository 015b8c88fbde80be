"""Retry: how long to wait before the next attempt of a job."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import timedelta

from .directives import check_delay, check_period
from .errors import InvalidArgumentError

RetryFunction = Callable[[int, BaseException], float | timedelta]
"""Takes the number of the failed attempt, from 1, and its error; returns the delay."""


def back_off(attempts: int) -> float:
    """The default delay in seconds after this number of attempts, as the database computes it."""
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
