"""Job: its text, and building one for a test. No server."""

from __future__ import annotations

from datetime import UTC, datetime

from graphile_worker.testing import make_job
from graphile_worker.values.job import Job

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def test_a_job_for_a_test_needs_no_arguments() -> None:
    job = make_job()
    assert isinstance(job, Job)
    assert (job.id, job.task_identifier, job.payload, job.attempts, job.flags) == (1, "task", {}, 1, None)
    assert job.run_at == job.created_at == job.updated_at
    assert job.is_available


def test_a_job_for_a_test_takes_python_values() -> None:
    job = make_job("send", {"to": "a"}, id=5, run_at=NOON, attempts=3, key="k", flags=["x"], locked_at=NOON)
    assert (job.payload, job.run_at, job.locked_at) == ({"to": "a"}, NOON, NOON)
    assert (job.flags, job.is_available) == ({"x": True}, False)


def test_the_text_shows_times_as_times_and_leaves_out_what_is_unset() -> None:
    text = repr(make_job("send", {"to": "a"}, run_at=NOON, created_at=NOON))
    assert text.startswith('Job(id=1, payload={"to":"a"}, priority=0, run_at=2026-05-01 12:00:00+00:00, ')
    assert text.endswith("task_identifier='send')")
    assert "raw_" not in text
    assert "None" not in text


def test_a_long_payload_is_cut_in_the_text() -> None:
    assert len(repr(make_job(payload="x" * 10_000))) < 600
