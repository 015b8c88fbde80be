"""Checks of the running workers: whether an event loop is blocked, and whether they fetch jobs."""

from __future__ import annotations

from collections.abc import Iterator

from ..recovery.worker_rows import WorkerSummary
from ..text import count
from .facts import Locks, SilentJobs
from .finding import Finding, age, some, well

BLOCKED = "Nothing else runs in that process: no other job, no timer, no signal handler."
ADVICE = (
    "Make the task a plain `def`, which runs in a thread, or let it await; the worker's log has its stack. "
    "To end it now, stop the process"
)


def check_workers(locks: Locks) -> Iterator[Finding]:
    """Pools whose event loop is blocked, that are silent although they are alive, or that fetch nothing."""
    if locks.workers is None:
        return
    alive = [worker for worker in locks.workers if worker.is_alive]
    found = [finding for worker in alive for finding in _hindered(worker, locks)]
    if found:
        yield from found
    elif alive:
        verb = "is" if len(alive) == 1 else "are"
        yield well("workers", f"{count(len(alive), 'worker pool')} {verb} running")
    else:
        yield well("workers", "no Python worker is running")


def _hindered(worker: WorkerSummary, locks: Locks) -> Iterator[Finding]:
    process = f"{worker.pid} on {worker.host}."
    if worker.blocked is not None:
        yield Finding(
            "workers", "warning", f"worker pool {worker.id}: {worker.blocked.culprit} has blocked its event "
            f"loop for {age(worker.blocked.seconds)}",
            BLOCKED, f"{ADVICE} {process}",
        )  # fmt: skip
    elif worker.silent_for is not None:
        last = _last(locks.silent[worker.id]) if worker.id in locks.silent else ""
        yield Finding(
            "workers", "warning", f"worker pool {worker.id} missed its heartbeats for "
            f"{age(worker.silent_for)}{last}",
            "Its connection is open, so it counts as alive. A task blocks its event loop, or its machine is "
            "overloaded.",
            f"See its log. {ADVICE} {process}",
        )  # fmt: skip
    elif worker.stalled_for is not None:
        yield Finding(
            "workers", "warning", f"worker pool {worker.id} has free slots, but no fetch has succeeded for "
            f"{age(worker.stalled_for)}",
            "It is alive but does not take ready jobs.",
            "Its log says why fetches fail, for example because the forbidden_flags function raises. If it "
            f"says nothing, restart the process {process}",
        )  # fmt: skip


def _last(silent: SilentJobs) -> str:
    verb = "last reported running" if silent.is_reported else "has locked"
    return f"; it {verb}: {some(silent.jobs)}"
