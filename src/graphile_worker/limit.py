"""Limit: how many jobs of some tasks run at once, and how many start in a period, in all Python workers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import msgspec
from msgspec.structs import force_setattr

from .errors import ConfigError, InvalidArgumentError

Rate = tuple[int, timedelta | float]
"""The number of starts and the period, a timedelta or seconds."""

MOST = 1_000_000_000
SHORTEST = 0.001  # seconds
LONGEST_NAME = 128


class _NamedLimit(msgspec.Struct, frozen=True):
    name: str


class Limit(_NamedLimit, frozen=True, kw_only=True):
    """`Limit("openai", concurrency=20, rate=(500, timedelta(minutes=1)), burst=50)`, for `@task(limit=…)`.

    All tasks with a limit of this name share it, in all Python workers of the database.
    """

    concurrency: int | None = None
    """How many of the jobs may run at once."""
    rate: tuple[int, timedelta | float] | None = None
    """How many of them may start in a period, which is a timedelta or seconds."""
    burst: int | None = None
    """How many may start at once after a rest; half a second's worth of the rate by default, at least one."""

    def __post_init__(self) -> None:
        check_limit_name(self.name)
        check_bounds(self.concurrency, self.rate, self.burst)
        if self.rate is not None:  # equal limits are equal, however their periods are written
            force_setattr(self, "rate", (self.rate[0], timedelta(seconds=seconds_of(self.rate))))
        if self.concurrency is None and self.rate is None:
            raise InvalidArgumentError("limit", f"{self.name!r} has neither a concurrency nor a rate")
        if self.burst is not None and self.rate is None:
            raise InvalidArgumentError("burst", f"the limit {self.name!r} has no rate to exceed")


def seconds_of(rate: Rate) -> float:
    """The period of a rate in seconds."""
    period = rate[1]
    return period.total_seconds() if isinstance(period, timedelta) else float(period)


def check_limit_name(name: object) -> None:
    """Refuse what cannot be the name of a limit."""
    is_name = isinstance(name, str) and name.strip() and name.isprintable() and len(name) <= LONGEST_NAME
    if not is_name:
        raise InvalidArgumentError(
            "limit", f"expected a name of at most {LONGEST_NAME} printable characters, got {name!r}"
        )


def check_bounds(concurrency: object, rate: object, burst: object) -> None:
    """Refuse wrong numbers."""
    if concurrency is not None:
        _check_count("concurrency", concurrency, 0)
    if rate is not None:
        if not isinstance(rate, tuple) or len(rate) != 2:
            raise InvalidArgumentError(
                "rate", f"expected a number and a period, such as (500, timedelta(minutes=1)), got {rate!r}"
            )
        _check_count("rate", rate[0], 1)
        period = rate[1]
        if isinstance(period, bool) or not isinstance(period, timedelta | int | float):
            raise InvalidArgumentError(
                "rate", f"expected a timedelta or seconds as its period, got {period!r}"
            )
        if not SHORTEST <= seconds_of((1, period)) <= MOST:
            raise InvalidArgumentError(
                "rate", f"its period must be from {SHORTEST} to {MOST} seconds, got {period!r}"
            )
        if rate[0] > MOST * seconds_of((1, period)):
            raise InvalidArgumentError("rate", f"at most {MOST} starts per second are possible, got {rate!r}")
    if burst is not None:
        _check_count("burst", burst, 1)


def _check_count(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
        raise InvalidArgumentError(name, f"expected a whole number from {least} to {MOST}, got {value!r}")


def unique_limits(limits: Iterable[Limit]) -> list[Limit]:
    """Each limit once, by name. ConfigError if two of one name differ."""
    found: dict[str, Limit] = {}
    for limit in limits:
        if found.setdefault(limit.name, limit) != limit:
            raise ConfigError(
                f"there are two limits with the name {limit.name!r} and different bounds; use one object"
            )
    return [found[name] for name in sorted(found)]
