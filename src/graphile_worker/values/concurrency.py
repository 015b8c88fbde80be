"""How many jobs may run at once: lanes of one worker, limits of all Python workers.

A `Lane` is tasks with slots of their own, so that slow tasks cannot starve fast ones. A `Limit` says how many
jobs of some tasks run at once, and how many start in a period.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal, get_args

import msgspec
from msgspec.structs import force_setattr, replace

from ..errors import ConfigError, InvalidArgumentError

MAIN = "main"
"""The name of the lane of all tasks that are in no other lane. Its slots are the option `concurrency`."""
MOST_SLOTS = 1_000_000
MOST_ASKED_SLOTS = 10_000
"""An operator may ask a running worker for this many: a zero too many would end it."""

Order = Literal["priority", "fair"]
"""In which order a lane takes jobs: by priority and time, or of one named queue after another."""
ORDERS: tuple[str, ...] = get_args(Order)
FAIR: Order = "fair"


class _NamedLane(msgspec.Struct, frozen=True):
    name: str


class Lane(_NamedLane, frozen=True, kw_only=True):
    """Slots for some of the tasks of a worker: `Lane("video", tasks=[transcode], concurrency=2)`.

    Each worker process runs at most `concurrency` jobs of these tasks at a time, in addition to those of its
    other tasks. A task may also name its lane itself: `@task(lane="video")`.
    """

    tasks: Collection[str | Callable[..., Any]] = ()
    """Tasks of the worker, or their identifiers."""
    concurrency: int = 1
    order: Literal["priority", "fair"] = "priority"
    """"fair" serves named queues in turn, so that a long one does not delay the others."""

    def __post_init__(self) -> None:
        check_lane_name(self.name)
        if isinstance(self.tasks, str) or not isinstance(self.tasks, Collection):
            raise ConfigError(
                f"lane {self.name!r}: tasks: expected a list of tasks or identifiers, got {self.tasks!r}"
            )
        check_slots(self.name, self.concurrency)
        if self.order not in ORDERS:
            raise ConfigError(
                f"lane {self.name!r}: order: expected one of {', '.join(ORDERS)}; got {self.order!r}"
            )


def check_lane_name(name: object) -> None:
    """Refuse what cannot be the name of a lane."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise ConfigError(f"lanes: expected a name of printable characters, got {name!r}")
    if name == MAIN:
        raise ConfigError(
            f"lanes: {MAIN!r} is the lane of all other tasks; the option concurrency sets its slots"
        )


def check_slots(name: str, slots: object) -> None:
    """Refuse what cannot be the number of slots of a lane."""
    if isinstance(slots, bool) or not isinstance(slots, int):
        raise ConfigError(f"lanes: {name}: expected a whole number of slots, got {slots!r}")
    if slots < 1:
        raise ConfigError(f"lanes: {name}: must be at least 1, got {slots}")
    if slots > MOST_SLOTS:
        raise ConfigError(f"lanes: {name}: must be at most {MOST_SLOTS}, got {slots}")


def check_asked_slots(argument: str, slots: object) -> None:
    """Refuse what an operator may not ask of a running worker."""
    if isinstance(slots, bool) or not isinstance(slots, int):
        raise InvalidArgumentError(argument, f"expected a whole number, got {slots!r}")
    if not 1 <= slots <= MOST_ASKED_SLOTS:
        raise InvalidArgumentError(argument, f"must be from 1 to {MOST_ASKED_SLOTS}, got {slots}")


def checked_slots(lanes: object) -> dict[str, int]:
    """The option `lanes`: slots by the name of the lane. Numbers may be text, as in the environment."""
    if not isinstance(lanes, Mapping):
        raise ConfigError(
            f"lanes: expected names and slots, such as video=2, got {lanes!r}; run and App take Lane objects"
        )
    checked = {}
    for name, slots in lanes.items():
        check_lane_name(name)
        checked[name] = int(slots) if isinstance(slots, str) and slots.strip().isdecimal() else slots
        check_slots(name, checked[name])
    return checked


def checked_lanes(lanes: Iterable[object]) -> tuple[Lane, ...]:
    """Lanes from code; each name once."""
    found: dict[str, Lane] = {}
    for lane in lanes:
        if not isinstance(lane, Lane):
            raise ConfigError(f"lanes: expected Lane objects, got {lane!r}")
        if lane.name in found:
            raise ConfigError(f"lanes: there are two lanes with the name {lane.name!r}")
        found[lane.name] = lane
    return tuple(found.values())


def slots_of(lanes: Iterable[Lane]) -> dict[str, int]:
    """What the option `lanes` has for these lanes."""
    return {lane.name: lane.concurrency for lane in lanes}


def lanes_of(given: Any) -> tuple[tuple[Lane, ...], Mapping[str, int] | None]:
    """The argument `lanes` of a call, a list of lanes or the option: the lanes, and slots by name."""
    if given is None or isinstance(given, Mapping):
        return (), given
    if isinstance(given, Lane | str) or not isinstance(given, Iterable):
        raise ConfigError(f"lanes: expected a list of lanes, got {given!r}")
    lanes = checked_lanes(given)
    return lanes, slots_of(lanes)


def merged_lanes(lanes: Iterable[Lane], slots: Mapping[str, int]) -> list[Lane]:
    """The lanes of a worker: those from code, of which later ones win, with the slots of the option."""
    merged = {lane.name: lane for lane in lanes}
    for name, count in slots.items():
        merged[name] = replace(merged.get(name, Lane(name)), concurrency=count)
    return list(merged.values())


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
    """How many may start at once after an idle period; by default half a second's worth, at least one."""

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
