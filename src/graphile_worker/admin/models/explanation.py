"""The explanation of a job: why it does not run."""

from __future__ import annotations

from typing import Literal

import msgspec

ExplanationKind = Literal[
    "gone",
    "running",
    "running_long",
    "prefetched",
    "held",
    "cancelling",
    "dead_worker",
    "unknown_worker",
    "stale_lock",
    "no_attempts",
    "cancelled",
    "retry_later",
    "later",
    "paused_everything",
    "paused_task",
    "paused_queue",
    "queue_busy",
    "queue_lock_lost",
    "no_worker",
    "unknown_task",
    "workers_quiet",
    "limit_concurrency",
    "limit_rate",
    "flags",
    "in_line",
    "slots_busy",
    "blocked_loop",
    "not_listening",
    "clock",
    "overdue",
    "soon",
    "workers_unknown",
]
Tone = Literal["ok", "run", "warn", "bad", "idle"]


class Remedy(msgspec.Struct, frozen=True):
    """What helps: an action on the job, or a page."""

    label: str
    action: str = ""
    """`retry`, `run_now`, `cancel`; `resume_…` a queue, a task or all; `unlock_…` a queue or worker."""
    name: str = ""
    """The task, queue or worker that it is about."""
    page: str = ""
    """A page to open, such as `/doctor`; the name travels in its query."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job does not run, in one sentence, with evidence and what helps."""

    kind: ExplanationKind
    headline: str
    tone: Tone = "warn"
    evidence: list[str] = []
    remedies: list[Remedy] = []
    job_id: int | None = None
    """Another job that is the reason."""
    worker: str | None = None
    """The pool that is the reason."""
