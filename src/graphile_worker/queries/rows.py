"""Job values from rows. Statements return a job's columns in the order of Job's fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from ..db.connection import Row
from ..job import Job

_TASK_ID = Job.__struct_fields__.index("task_id")


def jobs_from_rows(rows: Iterable[Row]) -> list[Job]:
    """Jobs from rows with all columns, the task identifier last."""
    return [Job(*row) for row in rows]


def taken_jobs(rows: Iterable[Row | tuple[Any, ...]], pool_id: str, names: Mapping[int, str]) -> list[Job]:
    """Jobs that this pool has locked, from rows without the pool's id and the task identifiers."""
    return [Job(*row, pool_id, names[row[_TASK_ID]]) for row in rows]  # type: ignore[call-arg]


class FetchedJobs(Sequence[Job]):
    """Many jobs, created when one of them is first used, so that the next fetch can be sent before."""

    __slots__ = ("_count", "_jobs", "_make")

    def __init__(self, count: int, make: Callable[[], list[Job]]) -> None:
        self._count = count
        self._make: Callable[[], list[Job]] | None = make
        self._jobs: list[Job] = []

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> list[Job]: ...
    def __getitem__(self, index: int | slice) -> Job | list[Job]:
        return self._made[index]

    def __iter__(self) -> Iterator[Job]:
        return iter(self._made)

    @property
    def _made(self) -> list[Job]:
        if self._make is not None:
            self._jobs = self._make()
            self._make = None
        return self._jobs


def job_from_values(values: Iterable[Any]) -> Job:
    """A job from its columns, the task identifier last."""
    return Job(*values)
