"""CronItem, a recurring job written in code, and ParsedCronItem, what the scheduler works with.

Crontab text and code meet in ParsedCronItem; `code.py` and `crontab.py` make it, `scheduler.py` reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import time, timedelta
from typing import Any, Literal, Protocol, Self, TypedDict, Unpack, runtime_checkable
from zoneinfo import ZoneInfo

from ..errors import CrontabError
from .digest import TimestampDigest
from .fields import FieldError, parse_pattern
from .matcher import Matcher

CronJobKeyMode = Literal["replace", "preserve_run_at"]


@runtime_checkable
class HasIdentifier(Protocol):
    """A task: anything that knows its own identifier."""

    @property
    def identifier(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CronItemOptions:
    """How the jobs of an item are added, and how far back missed runs are made up for."""

    backfill_period: float | timedelta | str = 0.0
    """Seconds, a timedelta or a phrase such as "1d2h": runs missed that long ago are added at start-up."""
    max_attempts: int | None = None
    """How often each job is tried; None leaves it to the database (25)."""
    queue_name: str | None = None
    """The jobs run one after the other within this queue."""
    job_key: str | None = None
    """A job of this key that waits still is updated in place of adding a second one."""
    job_key_mode: CronJobKeyMode | None = None
    """What happens to such a job's run time; "replace" if a key is given alone."""
    priority: int | None = None
    """Jobs with smaller numbers run first."""
    tz: str | ZoneInfo | None = None
    """The zone whose clock the pattern means; None is UTC."""


class CronItemKeywords(TypedDict, total=False):
    """What every constructor of CronItem takes besides the task and the time."""

    payload: Any
    identifier: str | None
    backfill_period: float | timedelta | str
    max_attempts: int | None
    queue_name: str | None
    job_key: str | None
    job_key_mode: CronJobKeyMode | None
    priority: int | None
    tz: str | ZoneInfo | None


@dataclass(frozen=True, slots=True)
class CronItem:
    """A recurring job: which task, when, with which payload."""

    task: str | HasIdentifier
    """The task, or its name."""
    match: str | Callable[[TimestampDigest], object]
    """A crontab pattern such as "0 4 * * *", or a function that is asked for every minute."""
    options: CronItemOptions | Mapping[str, Any] = field(default_factory=CronItemOptions)
    payload: Any = None
    """An object: a mapping, a dataclass or the like; `_cron` is added to it."""
    identifier: str | None = None
    """Tells this item from others with the same task; must never change. The task's name if None."""

    @classmethod
    def every_minute(cls, task: str | HasIdentifier, **how: Unpack[CronItemKeywords]) -> Self:
        """Run each minute."""
        return cls._at(task, "* * * * *", how)

    @classmethod
    def every_n_minutes(cls, task: str | HasIdentifier, n: int, **how: Unpack[CronItemKeywords]) -> Self:
        """Run at minute 0 of each hour and every `n` minutes after it, `n` from 1 to 60."""
        if n not in range(1, 61):
            raise CrontabError(f"every_n_minutes: n must be from 1 to 60, found {n!r}")
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
        """Run each month on a day; months without that day are left out."""
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
            raise CrontabError(f"cron item for {task_identifier(task)!r}: {error}") from None
        values = dict(how)
        payload, identifier = values.pop("payload", None), values.pop("identifier", None)
        return cls(task, pattern, CronItemOptions(**values), payload, identifier)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCronOptions:
    """CronItemOptions after checking: seconds, a zone, and the mode that a key alone means."""

    backfill_period: float = 0.0
    max_attempts: int | None = None
    queue_name: str | None = None
    job_key: str | None = None
    job_key_mode: CronJobKeyMode | None = None
    priority: int | None = None
    tz: ZoneInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCronItem:
    """A recurring job that was read and checked, ready for the scheduler."""

    task: str
    match: Matcher
    options: ParsedCronOptions
    payload: dict[str, Any] | None
    identifier: str
    pattern: str | None = None
    """The time as it was written; None for a function."""
    source: str = field(default="", compare=False)
    line: int | None = field(default=None, compare=False)
    column: int | None = field(default=None, compare=False)
    """Where the task's name stands in a crontab."""

    @property
    def place(self) -> str:
        """Where it was written, for messages."""
        source = self.source or "another cron item"
        return source if self.line is None else f"{source}:{self.line}"


def task_identifier(task: object) -> str:
    """The name of a task that was given as a name or as the task itself."""
    name = task.identifier if isinstance(task, HasIdentifier) else task
    if not isinstance(name, str):
        raise CrontabError(f"a cron item's task must be a task or its name, found {task!r}")
    return name


def _clock(hour: int | time, minute: int) -> str:
    """Minute and hour fields; a `datetime.time` stands for both."""
    if not isinstance(hour, time):
        return f"{minute} {hour}"
    if hour.tzinfo is not None:
        raise CrontabError(f"{hour!r} has a time zone of its own; give a plain time and the zone as tz=")
    if hour.second or hour.microsecond or minute:
        raise CrontabError(f"{hour!r} must be a whole minute, with no minute beside it; runs have no seconds")
    return f"{hour.minute} {hour.hour}"
