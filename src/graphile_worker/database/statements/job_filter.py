"""JobFilter: which jobs to list, or to change together; and the parameters of its conditions in SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, get_args

import msgspec

from ...errors import InvalidArgumentError
from ...values.job import TAG_FLAG, Job
from ...values.spec import check_text

JobState = Literal["ready", "scheduled", "running", "failed"]
"""May run now; may run later; locked by a worker, which may not have started it yet; permanently failed."""
JOB_STATES: tuple[JobState, ...] = get_args(JobState)
FilterState = JobState | Literal["retrying"]
"""`retrying` chooses the scheduled jobs that wait for another attempt."""
FILTER_STATES: tuple[FilterState, ...] = ("ready", "scheduled", "retrying", "running", "failed")
JobOrder = Literal["oldest", "newest", "run_order"]
JOB_ORDERS: tuple[JobOrder, ...] = get_args(JobOrder)

RunPosition = tuple[int, float, int]
"""Priority, run_at in seconds since 1970, and id."""
FIRST_ID, LAST_ID = -(2**63), 2**63 - 1
BEGINNING: RunPosition = (-32768, float("-inf"), FIRST_ID)
"""Before every job."""

CONDITIONS = {
    "task": ("task_identifier", "of this task"),
    "queue": ("queue_name", "in this queue"),
    "tag": ("tag", "with this tag"),
    "flag": ("flag", "with this flag"),
    "worker": ("locked_by", "that this worker pool has locked"),
}
"""Names that a job must have: as the dashboard and the command line call them, the field, and in words."""

_TEXTS = ("task_identifier", "queue_name", "job_key", "locked_by", "flag", "error")
_TIMES = ("created_since", "created_until", "failed_since", "failed_until")
_FURTHER_TEXTS = ("text", "key_prefix", "redacted_error", "redacted_text")
_FURTHER_TIMES = ("run_since", "run_until")
_NUMBERS = {"id": 2**63, "priority": 2**15, "attempts": 2**15}
"""Numbers that can be bounded, and how large their columns are."""
_BOUNDS = tuple(f"{name}_{side}" for name in _NUMBERS for side in ("from", "to"))
_CONDITIONS = (*_TEXTS, *_TIMES, *_BOUNDS, *_FURTHER_TIMES, *_FURTHER_TEXTS)
"""Conditions of one value, in the order of their parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs to list or to change. All conditions must hold; None means any."""

    state: FilterState | None = None
    task_identifier: str | None = None
    queue_name: str | None = None
    job_key: str | None = None
    locked_by: str | None = None
    flag: str | None = None
    tag: str | None = None
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
        _check_choice("state", self.state, (None, *FILTER_STATES))
        _check_choice("order", self.order, JOB_ORDERS)
        _check_number("limit", self.limit, 1)
        for name in (*_TEXTS, "tag", *_FURTHER_TEXTS):
            _check_optional_text(name, getattr(self, name))
        if self.flag is not None and self.tag is not None:
            raise InvalidArgumentError("tag", "cannot be combined with flag; a tag is a flag too")
        for name in (*_TIMES, *_FURTHER_TIMES):
            _check_time(name, getattr(self, name))
        for name in _BOUNDS:
            size = _NUMBERS[name.partition("_")[0]]
            _check_number(name, getattr(self, name), -size, size - 1)
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
        return "scheduled" if self.state == "retrying" else self.state

    @property
    def has_conditions(self) -> bool:
        """Whether some jobs may not match."""
        return any(getattr(self, name) is not None for name in ("state", "tag", *_CONDITIONS, "payload"))

    @property
    def values(self) -> tuple[object, ...]:
        """The parameters $2 to $25 of statements that include the part `matching_jobs`; $26 is the state."""
        paths = [msgspec.json.encode(path.split(".")).decode() for path in self.payload or ()]
        texts = [_as_text(value) for value in (self.payload or {}).values()]
        values = {name: getattr(self, name) for name in _CONDITIONS}
        if self.tag is not None:
            values["flag"] = TAG_FLAG + self.tag
        if self.state == "retrying":
            values["attempts_from"] = max(1, self.attempts_from or 1)
        return (*values.values(), paths or None, texts or None)


def index_variant(filter: JobFilter, *, has_failed_index: bool) -> str:
    """The variant of a statement for the index with the fewest jobs; "" for that of all ids."""
    if filter.job_key is not None:
        return "@keyed"
    return "@failed" if filter.required_state == "failed" and has_failed_index else ""


def ids_to_walk(filter: JobFilter, *, is_down: bool) -> tuple[int, int]:
    """The id after which to start, and the last one to look at."""
    lowest = FIRST_ID if filter.id_from is None else filter.id_from
    highest = LAST_ID if filter.id_to is None else filter.id_to
    if is_down:
        return (highest + 1 if highest < LAST_ID else highest), lowest
    return (lowest - 1 if lowest > FIRST_ID else lowest), highest


def _as_text(value: str | int | bool) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _check_choice(argument: str, value: object, allowed: tuple[object, ...], when: str = "") -> None:
    if value not in allowed:
        names = ", ".join(str(name) for name in allowed if name is not None)
        raise InvalidArgumentError(
            argument, f"expected one of {names}{' ' + when if when else ''}; got {value!r}"
        )


def _check_number(argument: str, value: object, least: int, most: int | None = None) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgumentError(argument, f"expected a whole number, got {value!r}")
    if value < least or (most is not None and value > most):
        allowed = f"{least} or more" if most is None else f"from {least} to {most}"
        raise InvalidArgumentError(argument, f"must be {allowed}, got {value}")


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
