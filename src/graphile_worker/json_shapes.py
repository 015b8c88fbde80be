"""Jobs as the commands show them: one set of names for JSON, and the fields for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .job import Job

if TYPE_CHECKING:
    from .queries.inspection import JobDetails

INTERNAL = ("task_id", "job_queue_id")
"""Columns that mean nothing outside the database."""


def job_as_json(job: Job, **more: Any) -> dict[str, Any]:
    """Every column by its name; flags as a list of names; `more` adds what is not in the row."""
    values = {name: value for name, value in job.to_dict().items() if name not in INTERNAL}
    flags = sorted(values.pop("flags") or [])
    first = {"id": values.pop("id"), "task_identifier": values.pop("task_identifier")}
    return first | more | values | {"flags": flags}


def details_as_json(details: JobDetails) -> dict[str, Any]:
    """The same with the state and the name of the queue."""
    return job_as_json(details, state=details.state, queue_name=details.queue_name)
