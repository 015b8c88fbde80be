"""What happened to a job, as steps on a line: added, due, started, failed, next. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from ...diagnostics.explanation.values import Tone
from ..models.job import JobView
from ..show import one_line
from ..times import duration


class TimelineStep(msgspec.Struct, frozen=True):
    """One thing that happened, or will."""

    at: datetime
    text: str
    note: str = ""
    tone: Tone | str = ""
    """`bad`, `ok`, `next` for what is to come, or empty."""
    worker: str | None = None


def steps_of(job: JobView, now: datetime) -> list[TimelineStep]:
    """The steps in the order of their times."""
    steps: list[TimelineStep] = []
    if job.created_at is not None:
        steps.append(
            TimelineStep(job.created_at, "Added", "" if job.key is None else f"key {one_line(job.key, 60)}")
        )
    steps += _failures(job)
    steps += _finished(job)
    if job.state == "running" and job.locked_at is not None:
        steps.append(
            TimelineStep(
                job.locked_at, f"Locked for attempt {job.attempts}", _waited(job), "next", job.locked_by
            )
        )
    elif job.state in ("ready", "scheduled") and job.run_at is not None and job.attempts is not None:
        steps.append(_next(job, job.run_at, job.attempts, now))
    return sorted(steps, key=lambda step: step.at)


def _failures(job: JobView) -> list[TimelineStep]:
    """Each failed attempt, and its start where the duration is known."""
    steps = []
    for error in job.failed_attempts:
        kind = error.error_type or one_line(error.message, 60)
        version = f" · {error.version}" if error.version else ""
        if error.duration is not None:
            started = error.failed_at - timedelta(seconds=error.duration)
            steps.append(
                TimelineStep(
                    started, f"Attempt {error.attempt} started", version.strip(" ·"), "", error.worker
                )
            )
        took = f" after {duration(error.duration)}" if error.duration is not None else ""
        final = ", permanently" if error.is_final else ""
        steps.append(
            TimelineStep(error.failed_at, f"Attempt {error.attempt} failed{took}{final}", kind, "bad")
        )
    if not job.failed_attempts and job.state == "failed" and job.failed_at is not None:
        steps.append(TimelineStep(job.failed_at, "Failed permanently", one_line(job.last_error, 60), "bad"))
    return steps


def _finished(job: JobView) -> list[TimelineStep]:
    steps = []
    for finished in job.history:
        took = f" after {duration(finished.duration)}" if finished.duration is not None else ""
        tone = {"completed": "ok", "failed": "bad"}.get(finished.state, "")
        if finished.state == "failed" and any(error.is_final for error in job.failed_attempts):
            continue
        if finished.started_at is not None and finished.state == "completed":
            steps.append(
                TimelineStep(
                    finished.started_at, f"Attempt {finished.attempts} started", "", "", finished.worker
                )
            )
        steps.append(
            TimelineStep(
                finished.finished_at,
                f"{finished.state.capitalize()}{took}",
                one_line(finished.error, 60),
                tone,
            )
        )
    return steps


def _next(job: JobView, run_at: datetime, attempts: int, now: datetime) -> TimelineStep:
    of = f"{attempts + 1} of {job.max_attempts}"
    word = "Next attempt" if attempts else "First attempt"
    if run_at > now:
        return TimelineStep(run_at, f"{word} due", of, "next")
    return TimelineStep(max(run_at, job.created_at or run_at), f"{word} could have started", of, "next")


def _waited(job: JobView) -> str:
    if job.run_at is None or job.locked_at is None or job.attempts != 1:
        return ""
    ready = max(job.run_at, job.created_at or job.run_at)
    return f"waited {duration(max(0.0, (job.locked_at - ready).total_seconds()))}"
