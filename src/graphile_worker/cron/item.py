"""CronItem, a recurring job defined in code, and ParsedCronItem, its validated form for the scheduler.

`load.py` and `crontab.py` produce ParsedCronItems, `scheduler.py` consumes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import time, timedelta
from typing import Any, Literal, Protocol, Self, Unpack, runtime_checkable
from zoneinfo import ZoneInfo

from ..errors import CrontabError
from ..values.spec import SharedJobOptions, Unique
from .fields import FieldError, parse_pattern
from .matcher import Matcher, TimestampDigest

CronJobKeyMode = Literal["replace", "preserve_run_at"]


@runtime_checkable
class HasIdentifier(Protocol):
    """A task object."""

    @property
    def identifier(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CronItemOptions:
    """How an item's jobs are added, and how far back missed runs are backfilled."""

    backfill_period: float | timedelta | str = 0.0
    """Seconds, a timedelta or a phrase such as "1d2h": runs missed in this period are added at start-up."""
    max_attempts: int | None = None
    """Attempts of each job; the default is the task's, or 25."""
    queue_name: str | None = None
    """Jobs of one queue run one after another."""
    job_key: str | None = None
    """A waiting job with this key is updated; otherwise one is added."""
    job_key_mode: CronJobKeyMode | None = None
    """What happens to the `run_at` of such a job; the default is "replace"."""
    priority: int | None = None
    """Lower numbers run first."""
    unique: Unique | None = None
    """Add nothing while there is a job with the same payload, or the same members of it."""
    tags: Collection[str] | None = None
    """Labels to search for, to count and to show."""
    flags: Collection[str] | None = None
    """A worker skips jobs with a flag that it forbids."""
    timeout: float | timedelta | None = None
    """How long one attempt may run; the default is the task's."""
    expires: timedelta | None = None
    """Delete a job instead of running it if it was due longer ago than this."""
    keep: bool | timedelta | None = None
    """Keep finished jobs and their results, for the worker's retention or this long."""
    keep_payload: bool | None = None
    """Keep the payloads with them."""
    tz: str | ZoneInfo | None = None
    """The time zone of the pattern; None is UTC."""


class CronOptionKeywords(SharedJobOptions, total=False):
    """CronItemOptions as keyword arguments."""

    backfill_period: float | timedelta | str
    queue_name: str | None
    priority: int | None
    job_key_mode: CronJobKeyMode | None
    expires: timedelta | None
    tz: str | ZoneInfo | None


class CronItemKeywords(CronOptionKeywords, total=False):
    """The keyword arguments of CronItem's constructors, besides the task and the time."""

    payload: Any
    identifier: str | None


@dataclass(frozen=True, slots=True, init=False)
class CronItem:
    """A recurring job: which task, when, with which payload."""

    task: str | HasIdentifier
    """The task, or its identifier."""
    match: str | Callable[[TimestampDigest], object]
    """A crontab pattern such as "0 4 * * *", or a function that is called for every minute."""
    options: CronItemOptions | Mapping[str, Any]
    """How its jobs are added, as one value; the constructors take the options as keywords too."""
    payload: Any = None
    """A JSON object: a mapping, a dataclass or a model; `_cron` is added to it."""
    identifier: str | None = None
    """Unique among all items, and permanent; the default is the task's identifier."""

    def __init__(
        self,
        task: str | HasIdentifier,
        match: str | Callable[[TimestampDigest], object],
        options: CronItemOptions | Mapping[str, Any] | None = None,
        payload: Any = None,
        identifier: str | None = None,
        **how: Unpack[CronOptionKeywords],
    ) -> None:
        if how and options is not None:
            raise CrontabError("a cron item takes its options as keywords or in `options`, not both")
        chosen = CronItemOptions(**how) if options is None else options
        values = (task, match, chosen, payload, identifier)
        for name, value in zip(self.__slots__, values, strict=True):
            object.__setattr__(self, name, value)

    @classmethod
    def every_minute(cls, task: str | HasIdentifier, **how: Unpack[CronItemKeywords]) -> Self:
        """Run each minute."""
        return cls._at(task, "* * * * *", how)

    @classmethod
    def every_n_minutes(cls, task: str | HasIdentifier, n: int, **how: Unpack[CronItemKeywords]) -> Self:
        """Run at minute 0 of each hour and every `n` minutes after it, `n` from 1 to 60."""
        if n not in range(1, 61):
            raise CrontabError(f"every_n_minutes: n must be from 1 to 60, got {n!r}")
        return cls._at(task, f"*/{n} * * * *", how)

    @classmethod
    def hourly_at(cls, task: str | HasIdentifier, minute: int = 0, **how: Unpack[CronItemKeywords]) -> Self:
        """Run each hour at this minute."""
        return cls._at(task, f"{minute} * * * *", how)

    @classmethod
    def daily_at(
        cls, task: str | HasIdentifier, hour: int | time, minute: int = 0, **how: Unpack[CronItemKeywords]
    ) -> Self:
        """Run each day at this time."""
        return cls._at(task, f"{_clock(hour, minute)} * * *", how)

    @classmethod
    def weekly_on(
        cls,
        task: str | HasIdentifier,
        weekday: int | str,
        hour: int | time = 0,
        minute: int = 0,
        **how: Unpack[CronItemKeywords],
    ) -> Self:
        """Run each week on a weekday: 0 or 7 or "sunday" to 6 or "saturday"."""
        return cls._at(task, f"{_clock(hour, minute)} * * {weekday}", how)

    @classmethod
    def monthly_on(
        cls,
        task: str | HasIdentifier,
        day: int,
        hour: int | time = 0,
        minute: int = 0,
        **how: Unpack[CronItemKeywords],
    ) -> Self:
        """Run each month on a day; months without that day are skipped."""
        return cls._at(task, f"{_clock(hour, minute)} {day} * *", how)

    @classmethod
    def yearly_on(
        cls,
        task: str | HasIdentifier,
        month: int | str,
        day: int,
        hour: int | time = 0,
        minute: int = 0,
        **how: Unpack[CronItemKeywords],
    ) -> Self:
        """Run each year on a day of a month, given as a number or a name."""
        return cls._at(task, f"{_clock(hour, minute)} {day} {month} *", how)

    @classmethod
    def _at(cls, task: str | HasIdentifier, pattern: str, how: CronItemKeywords) -> Self:
        try:
            parse_pattern(pattern)
        except FieldError as error:
            raise CrontabError(f"cron item for {identifier_of(task)!r}: {error}") from None
        return cls(task, pattern, **how)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCronOptions(CronItemOptions):
    """Validated CronItemOptions, with the period in seconds and the default mode of a key."""

    backfill_period: float = 0.0
    tz: ZoneInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCronItem:
    """A validated recurring job, ready for the scheduler."""

    task_identifier: str
    match: Matcher
    options: ParsedCronOptions
    payload: dict[str, Any] | None
    identifier: str
    pattern: str | None = None
    """The pattern as written; None for a function."""
    source: str = field(default="", compare=False)
    line: int | None = field(default=None, compare=False)
    column: int | None = field(default=None, compare=False)
    """The position of the task identifier in a crontab."""

    @property
    def place(self) -> str:
        """The file and line, for messages."""
        source = self.source or "another cron item"
        return source if self.line is None else f"{source}:{self.line}"


def identifier_of(task: object) -> str:
    """The identifier of a task, or the identifier itself."""
    identifier = task.identifier if isinstance(task, HasIdentifier) else task
    if not isinstance(identifier, str):
        raise CrontabError(f"a cron item's task must be a task or its identifier, got {task!r}")
    return identifier


def _clock(hour: int | time, minute: int) -> str:
    """The minute and hour fields; a `datetime.time` gives both."""
    if not isinstance(hour, time):
        return f"{minute} {hour}"
    if hour.tzinfo is not None:
        raise CrontabError(f"{hour!r} has a time zone of its own; give a plain time and the zone as tz=")
    if hour.second or hour.microsecond or minute:
        raise CrontabError(f"{hour!r} must be a whole minute, given without minute=; runs have no seconds")
    return f"{hour.minute} {hour.hour}"
