"""Comparing jobs that were listed with jobs that were returned by other calls."""

from __future__ import annotations

from graphile_worker.values.job import Job


def as_job(found: Job | None) -> Job:
    """The columns of a job without the details that only `jobs.get` and `jobs.list` add."""
    assert found is not None
    return Job(*(getattr(found, name) for name in Job.__struct_fields__))
