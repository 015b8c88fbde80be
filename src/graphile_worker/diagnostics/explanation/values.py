"""The explanation of jobs that do not run, and its words: the same for one job and for many."""

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
    "workers_paused",
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

WORDS: dict[ExplanationKind, str] = {
    "paused_everything": "every task is paused{terms}",
    "paused_task": "the task{name} is paused{terms}",
    "paused_queue": "the queue{name} is paused{terms}",
    "queue_busy": "the queue{name} is busy{details}",
    "queue_lock_lost": "the queue{name} is locked{details}, and no job of it is known to run",
    "workers_unknown": "nothing tells which workers are running",
    "no_worker": "no {python}worker is running",
    "unknown_task": "no running {python}worker has the task{name}",
    "workers_paused": "all workers that have the task are paused or stopping",
    "limit_concurrency": "the limit{name} is reached{details}",
    "limit_rate": "the limit{name} has no start left{details}",
    "flags": "{workers} with the task {refuse} {flags}",
    "slots_busy": "all slots of the workers with the task are busy",
    "blocked_loop": "the event loop of {where} is blocked{details}",
    "not_listening": "notifications do not reach the workers with the task; they find jobs by polling",
    "clock": "the clock of a worker with the task is wrong",
    "overdue": "workers with the task have free slots and do not take {jobs}",
}
"""Why ready jobs do not run. A sentence about one job fills in names; one about many leaves them out."""
OF_MANY = {
    "workers": "the workers", "refuse": "refuse", "flags": "the flags of jobs",
    "where": "the workers with the task", "jobs": "the jobs",
}  # fmt: skip


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


class _Names(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return OF_MANY.get(name, "")


def words(kind: ExplanationKind, **names: str) -> str:
    """The reason as a part of a sentence. Without names it fits jobs of several tasks."""
    return WORDS[kind].format_map(_Names(names))


def title(text: str) -> str:
    """The text with a capital letter."""
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """The text as a sentence of its own."""
    return title(text) + ("" if text.endswith("?") else ".")
