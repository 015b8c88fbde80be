"""JobFilter: which jobs to list, or to change together; and the SQL of its conditions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, get_args

from ..errors import InvalidArgumentError
from ..job import Job
from ..schema_name import SchemaName
from ..spec import check_text
from ..sql import load

JobState = Literal["ready", "scheduled", "locked", "failed"]
"""May run now; may run later; taken by a worker; permanently failed."""
JOB_STATES: tuple[JobState, ...] = get_args(JobState)
JobOrder = Literal["oldest", "newest", "run_order"]
JOB_ORDERS: tuple[JobOrder, ...] = get_args(JobOrder)

CONDITIONS = "-- :conditions\n"
"""The line of a statement that is replaced by further conditions."""
_TEXTS = ("task_identifier", "queue_name", "job_key", "locked_by", "flag", "error")
_TIMES = ("created_since", "created_until", "failed_since", "failed_until")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs to list or to change. All conditions must hold; None means any."""

    state: JobState | None = None
    task_identifier: str | None = None
    queue_name: str | None = None
    job_key: str | None = None
    locked_by: str | None = None
    flag: str | None = None
    error: str | None = None
    """A part of the last error, in upper or lower case."""
    created_since: datetime | None = None
    created_until: datetime | None = None
    """Added before this time."""
    failed_since: datetime | None = None
    """Failed permanently at or after this time; only failed jobs match."""
    failed_until: datetime | None = None
    """Failed permanently before this time; only failed jobs match."""
    order: JobOrder = "oldest"
    """By ascending or descending id, or as workers take them (ready and scheduled jobs only)."""
    after: Job | int | None = None
    """The last job of the previous page, or its id; `run_order` needs the job."""
    limit: int | None = None
    """How many jobs at most. None lists 50, and changes all."""

    def __post_init__(self) -> None:
        _check_choice("state", self.state, (None, *JOB_STATES))
        _check_choice("order", self.order, JOB_ORDERS)
        _check_limit(self.limit)
        for name in _TEXTS:
            _check_optional_text(name, getattr(self, name))
        for name in _TIMES:
            _check_time(name, getattr(self, name))
        if self.failed_since is not None or self.failed_until is not None:
            _check_choice("state", self.state, (None, "failed"), "with failed_since or failed_until")
        if self.order == "run_order":
            _check_choice(
                "state", self.required_state, (None, "ready", "scheduled"), "with the order run_order"
            )
            if isinstance(self.after, int):
                raise InvalidArgumentError("after", "expected the Job itself with the order run_order")

    @property
    def required_state(self) -> JobState | None:
        """The state that a matching job must have, named or implied by another condition."""
        if self.failed_since is not None or self.failed_until is not None:
            return "failed"
        return self.state

    @property
    def has_conditions(self) -> bool:
        """Whether some jobs may not match."""
        names = ("state", *_TEXTS, *_TIMES)
        return any(getattr(self, name) is not None for name in names)

    @property
    def values(self) -> tuple[object, ...]:
        """The parameters $2 to $11 of a statement that includes parts/matching_jobs."""
        return tuple(getattr(self, name) for name in (*_TEXTS, *_TIMES))


def condition_parts(filter: JobFilter) -> list[str]:
    """The parts of SQL with the conditions that an index can serve."""
    parts = [] if filter.required_state is None else [f"listed_{filter.required_state}"]
    return parts if filter.job_key is None else [*parts, "listed_with_key"]


def with_parts(statement: str, place: str, parts: list[str], schema: SchemaName) -> str:
    """The statement with these parts in place of every line `place`."""
    return statement.replace(place, "".join(load(f"parts/{part}", schema) for part in parts))


def _check_choice(argument: str, value: object, allowed: tuple[object, ...], when: str = "") -> None:
    if value not in allowed:
        names = ", ".join(str(name) for name in allowed if name is not None)
        raise InvalidArgumentError(
            argument, f"expected one of {names}{' ' + when if when else ''}; got {value!r}"
        )


def _check_limit(limit: object) -> None:
    if limit is None:
        return
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise InvalidArgumentError("limit", f"expected a whole number, got {limit!r}")
    if limit < 1:
        raise InvalidArgumentError("limit", f"must be 1 or more, got {limit}")


def _check_optional_text(argument: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise InvalidArgumentError(argument, f"expected text, got {value!r}")
    check_text(argument, value)


def _check_time(argument: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, datetime):
        raise InvalidArgumentError(argument, f"expected a datetime with a time zone, got {value!r}")
    if value.utcoffset() is None:
        raise InvalidArgumentError(
            argument, f"{value!r} has no time zone; give it one, as in datetime.now(UTC)"
        )
    try:
        value.astimezone(UTC)
    except OverflowError:
        raise InvalidArgumentError(argument, f"{value!r} is outside of the years 1 to 9999 in UTC") from None
