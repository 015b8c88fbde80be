"""Specs as columns: one array per attribute, as the bulk statements take them."""

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
    """The attributes of some specs; optional columns are empty where no spec gives a value."""

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
        """The task of all specs, if it is the same one."""
        first = self.identifiers[0]
        return first if self.identifiers.count(first) == len(self.identifiers) else None

    def take(self, places: Sequence[int]) -> SpecColumns:
        """Some of the specs, by place."""
        columns = [getattr(self, name) for name in self.__slots__]
        return SpecColumns(*([column[place] for place in places] if column else [] for column in columns))


def columns_of(specs: Sequence[JobSpec], *, first: int = 0, now: datetime | None = None) -> SpecColumns:
    """The columns of these specs.

    `first` is the place of the first one in the caller's list, for messages; `now` is what jobs without a
    time get, and what delays count from; None leaves both to the server.
    """
    try:
        payloads = encode_all([spec.payload for spec in specs])
    except InvalidArgumentError as error:
        raise _with_place(specs, first) or error from error
    times, delays = _split_times([spec.run_at for spec in specs], now)
    return SpecColumns(
        identifiers=[spec.identifier for spec in specs],
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
    """The two parameters for one `run_at`: an instant, or seconds that the server adds to its now.

    Seconds and not days, which would be an hour more or less when the clocks change in between.
    """
    if isinstance(run_at, timedelta):
        return (None, run_at.total_seconds()) if now is None else (now + run_at, None)
    return (now if run_at is None else run_at), None


def as_texts(column: Iterable[object]) -> list[str | None]:
    """A column in the one kind of array that the driver knows without asking the server about it."""
    return [None if value is None else str(value) for value in column]


def array_text(values: Collection[str]) -> str:
    """The text form of a PostgreSQL array of texts."""
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


def _with_place(specs: Sequence[JobSpec], first: int) -> InvalidArgumentError | None:
    """Which spec has the payload that cannot be written; looked for only after one was found."""
    for place, spec in enumerate(specs, start=first):
        try:
            encode(spec.payload)
        except InvalidArgumentError as error:
            problem = str(error).removeprefix(f"{error.argument}: ")
            return InvalidArgumentError(f"specs[{place}].payload", problem)
    return None
