"""JobFilter: which jobs to list, or to change together; and the SQL of its conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, get_args

import msgspec

from ...errors import InvalidArgumentError
from ...values.job import Job
from ...values.schema_name import SchemaName
from ...values.spec import check_text
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
_FURTHER_TEXTS = ("text", "key_prefix", "redacted_error", "redacted_text")
_FURTHER_TIMES = ("run_since", "run_until")
_NUMBERS = {"id": 2**63, "priority": 2**15, "attempts": 2**15}
"""Numbers that can be bounded, and how large their columns are."""
_BOUNDS = tuple(f"{name}_{side}" for name in _NUMBERS for side in ("from", "to"))
_FURTHER = (*_BOUNDS, *_FURTHER_TIMES, *_FURTHER_TEXTS)
"""Conditions with a part of SQL of their own, `parts/matching_...`, which is there only if they are used."""


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
    id_from: int | None = None
    id_to: int | None = None
    """The last id of the range."""
    priority_from: int | None = None
    priority_to: int | None = None
    attempts_from: int | None = None
    attempts_to: int | None = None
    """Started at most this often."""
    run_since: datetime | None = None
    run_until: datetime | None = None
    """To be run before this time."""
    key_prefix: str | None = None
    """The beginning of the job key."""
    text: str | None = None
    """A part of the task identifier, the job key or the last error, in upper or lower case."""
    redacted_error: str | None = None
    """As `error`, but not in what looks like a secret: `password=...`, or a password in a URL."""
    redacted_text: str | None = None
    """As `text`, with the last error as in `redacted_error`."""
    payload: Mapping[str, str | int | bool] | None = None
    """Members of the payload by their path, as in `{"user.id": 42}`; a text matches a number too."""
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
        for name in (*_TEXTS, *_FURTHER_TEXTS):
            _check_optional_text(name, getattr(self, name))
        for name in (*_TIMES, *_FURTHER_TIMES):
            _check_time(name, getattr(self, name))
        for name in _BOUNDS:
            _check_number(name, getattr(self, name), _NUMBERS[name.partition("_")[0]])
        _check_members(self.payload)
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
        names = ("state", *_TEXTS, *_TIMES, *_FURTHER, "payload")
        return any(getattr(self, name) is not None for name in names)

    @property
    def values(self) -> tuple[object, ...]:
        """The parameters $2 to $11 of a statement that includes parts/matching_jobs."""
        return tuple(getattr(self, name) for name in (*_TEXTS, *_TIMES))


def with_conditions(
    statement: str, filter: JobFilter, schema: SchemaName, used: int, more: Sequence[str] = ()
) -> tuple[str, tuple[object, ...]]:
    """The statement with the filter's conditions at its lines `:conditions`, and the values to append.

    `used` is the number of values that the statement has without them; `more` are further parts.
    """
    text, values = "", list[object]()
    for part, given in _further_parts(filter):
        condition = load(f"parts/matching_{part}", schema)
        for place, value in given.items():
            values.append(value)
            condition = condition.replace(place, f"${used + len(values)}")
        text += condition
    served = "".join(load(f"parts/{part}", schema) for part in (*condition_parts(filter), *more))
    return statement.replace(CONDITIONS, served + text), tuple(values)


def _further_parts(filter: JobFilter) -> Iterator[tuple[str, dict[str, object]]]:
    """The parts of the conditions that few filters have, with the values of their parameters."""
    for name in _FURTHER:
        if (value := getattr(filter, name)) is not None:
            yield name, {":value": value}
    for path, value in (filter.payload or {}).items():
        names = msgspec.json.encode(path.split(".")).decode()
        yield "payload", {":path": names, ":value": _as_text(value)}


def _as_text(value: str | int | bool) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


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


def _check_number(argument: str, value: object, size: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgumentError(argument, f"expected a whole number, got {value!r}")
    if not -size <= value < size:
        raise InvalidArgumentError(argument, f"must be from {-size} to {size - 1}, got {value}")


def _check_members(payload: object) -> None:
    if payload is None:
        return
    if not isinstance(payload, Mapping) or not payload:
        raise InvalidArgumentError("payload", f"expected values by their paths, got {payload!r}")
    for path, value in payload.items():
        if not isinstance(path, str) or not isinstance(value, str | int | bool):
            raise InvalidArgumentError(
                "payload", f"expected a path and a text, number or boolean; got {path!r}: {value!r}"
            )
        check_text("payload", path)
        check_text("payload", str(value))


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
