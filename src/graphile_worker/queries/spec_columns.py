"""Specs as columns: one array per attribute, the form that bulk statements take."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ..errors import InvalidArgumentError
from ..payload import encode, encode_all
from ..spec import JobSpec


@dataclass(slots=True)
class SpecColumns:
    """The attributes of several specs. A column is empty if no spec has a value for it."""

    identifiers: list[str]
    payloads: list[str]
    queue_names: list[str | None]
    run_at: list[datetime | None]
    delays: list[float | None]
    max_attempts: list[int | None]
    job_keys: list[str | None]
    priorities: list[int | None]
    flags: list[tuple[str, ...] | None]

    def __len__(self) -> int:
        return len(self.identifiers)

    @property
    def has_keys_or_flags(self) -> bool:
        return bool(self.job_keys or self.flags)

    @property
    def has_payloads_only(self) -> bool:
        return (
            not (self.queue_names or self.run_at or self.delays or self.max_attempts or self.priorities)
            and not self.has_keys_or_flags
        )

    @property
    def only_identifier(self) -> str | None:
        """The task of all specs, if they have the same one."""
        first = self.identifiers[0]
        return first if self.identifiers.count(first) == len(self.identifiers) else None

    def take(self, places: Sequence[int]) -> SpecColumns:
        """The specs at these positions."""
        columns = [getattr(self, name) for name in self.__slots__]
        return SpecColumns(*([column[place] for place in places] if column else [] for column in columns))


def columns_of(specs: Sequence[JobSpec], *, first: int = 0, now: datetime | None = None) -> SpecColumns:
    """The columns of these specs.

    `first` is the position of the first one in the caller's list, for error messages. `now` replaces the
    server's clock.
    """
    try:
        payloads = encode_all([spec.payload for spec in specs])
    except InvalidArgumentError as error:
        raise _locate_error(specs, first) or error from error
    times, delays = _split_times([spec.run_at for spec in specs], now)
    return SpecColumns(
        identifiers=[spec.task_identifier for spec in specs],
        payloads=payloads,
        queue_names=_or_empty([spec.queue_name for spec in specs]),
        run_at=times,
        delays=delays,
        max_attempts=_or_empty([spec.max_attempts for spec in specs]),
        job_keys=_or_empty([spec.job_key for spec in specs]),
        priorities=_or_empty([spec.priority for spec in specs]),
        flags=_or_empty([tuple(spec.flags) if spec.flags else None for spec in specs]),
    )


def time_and_delay(
    run_at: datetime | timedelta | None, now: datetime | None
) -> tuple[datetime | None, float | None]:
    """The two parameters for one `run_at`: a time, or seconds that the server adds to its own.

    Seconds, because an interval of days changes its length when daylight saving time begins or ends.
    """
    if isinstance(run_at, timedelta):
        return (None, run_at.total_seconds()) if now is None else (now + run_at, None)
    return (now if run_at is None else run_at), None


def as_texts(column: Iterable[object]) -> list[str | None]:
    """A column as an array of texts, the only array type that asyncpg knows without a catalog query."""
    return [None if value is None else str(value) for value in column]


def array_text(values: Collection[str]) -> str:
    """The literal of a PostgreSQL text array."""
    quoted = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return "{" + ",".join(f'"{value}"' for value in quoted) + "}"


def _or_empty(column: list[Any]) -> list[Any]:
    return [] if column.count(None) == len(column) else column


def _split_times(
    column: list[datetime | timedelta | None], now: datetime | None
) -> tuple[list[datetime | None], list[float | None]]:
    if now is None and column.count(None) == len(column):
        return [], []
    pairs = [time_and_delay(run_at, now) for run_at in column]
    return _or_empty([time for time, _ in pairs]), _or_empty([delay for _, delay in pairs])


def _locate_error(specs: Sequence[JobSpec], first: int) -> InvalidArgumentError | None:
    """The error for the first spec whose payload cannot be encoded, with its position."""
    for place, spec in enumerate(specs, start=first):
        try:
            encode(spec.payload)
        except InvalidArgumentError as error:
            problem = str(error).removeprefix(f"{error.argument}: ")
            return InvalidArgumentError(f"specs[{place}].payload", problem)
    return None
