"""From rows to Job values. Statements return a job's columns in the order of Job's fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..db.connection import Row
from ..job import Job

_TASK_ID = Job.__struct_fields__.index("task_id")


def jobs_from_rows(rows: Iterable[Row]) -> list[Job]:
    """Jobs from rows that hold all columns, the task identifier last."""
    return [Job(*row) for row in rows]


def jobs_with_names(rows: Iterable[Row], names: Mapping[int, str]) -> list[Job]:
    """Jobs from rows without the task identifier, which is found by the task's id."""
    return [Job(*row, names[row[_TASK_ID]]) for row in rows]  # type: ignore[call-arg]


def job_from_values(values: Iterable[Any]) -> Job:
    """A job from its columns, the task identifier last."""
    return Job(*values)
