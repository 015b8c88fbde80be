"""Why jobs wait.

Why ready jobs are not run: one finding for each reason, with the tasks that it concerns.

Checks of limits: whether jobs run that no limit counts.

What is paused: why jobs wait.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from ..database.statements.inspection import ReadyTask
from ..recovery.registry.workers import RunningTasks
from ..values.job import PAUSED_BY, Pause
from ..values.text import count, duration, similar_names
from .facts import JobsOutsideLimit, Waiting
from .finding import Finding, Severity, Thresholds, some, well

Explain = Callable[[list[ReadyTask], RunningTasks], Finding]


def check_waiting(waiting: Waiting, thresholds: Thresholds) -> Iterator[Finding]:
    """Tasks whose jobs have been ready for long."""
    late = [task for task in waiting.ready if task.age >= thresholds.waiting_age]
    if not late:
        yield well("waiting", "no job has been waiting for long")
        return
    paused = [task for task in late if _is_paused(task, waiting)]
    if paused:
        yield _paused(paused)
        late = [task for task in late if task not in paused]
    running = waiting.running
    queued = [task for task in late if task.free_age is None or task.free_age < thresholds.waiting_age]
    others = [task for task in late if task not in queued]
    if others and running is None:
        yield _finding(
            others, "have been ready for long",
            "The database does not know which workers are running, because the Python-only objects are "
            "missing. No worker may be running, or none that has the tasks.",
            "Run `graphile-worker migrate`; start a worker that has the tasks.",
        )  # fmt: skip
    elif running is not None:
        reasons: dict[Explain, list[ReadyTask]] = {}
        for task in others:
            reasons.setdefault(_reason(task, running), []).append(task)
        for explain, tasks in reasons.items():
            yield explain(tasks, running)
    if queued:
        yield _in_queues(queued)


def _is_paused(task: ReadyTask, waiting: Waiting) -> bool:
    """Whether an operator keeps its jobs from running."""
    if any(
        pause.queue_name is None and pause.name in (None, task.task_identifier) for pause in waiting.pauses
    ):
        return True
    return task.free_age is None and task.locked_by == PAUSED_BY


def _paused(tasks: list[ReadyTask]) -> Finding:
    return _finding(
        tasks, "wait because their task or queue is paused", "An operator has paused it.",
        "See `graphile-worker pause`; to go on, `graphile-worker resume`.",
        severity="info",
    )  # fmt: skip


def _reason(task: ReadyTask, running: RunningTasks) -> Explain:
    if not running.pools:
        return _no_worker
    if task.task_identifier not in running.tasks:
        return _unknown
    return _flagged if task.flagged == task.jobs - task.in_locked_queues else _slow


def _no_worker(tasks: list[ReadyTask], running: RunningTasks) -> Finding:
    if running.has_others:
        return _finding(
            tasks, "wait, and no Python worker is running",
            "Workers of other runtimes may be running; they do not report which tasks they have.",
            "Start a worker that has the tasks.",
        )  # fmt: skip
    return _finding(
        tasks, "wait, and no worker is running", "Jobs run only while a worker is running.",
        "Start one: graphile-worker",
    )  # fmt: skip


def _unknown(tasks: list[ReadyTask], running: RunningTasks) -> Finding:
    meant = {task.task_identifier: similar_names(task.task_identifier, running.tasks) for task in tasks}
    guesses = [
        f"{name}: did you mean {' or '.join(map(repr, names))}?" for name, names in meant.items() if names
    ]
    others = " Workers of other runtimes do not report which tasks they have." if running.has_others else ""
    first = shlex.quote(tasks[0].task_identifier)
    return _finding(
        tasks, f"wait for a task that {running.no_worker} has",
        " ".join([f"The name is misspelt, or the workers have other code.{others}", *guesses[:5]]),
        f"Start a worker that has the task. To list the jobs: graphile-worker list --task {first}",
    )  # fmt: skip


def _flagged(tasks: list[ReadyTask], running: RunningTasks) -> Finding:
    flags = sorted({flag for task in tasks for flag in task.flags})
    return _finding(
        tasks, f"wait, and all of them have flags ({some(flags)})",
        "Running workers have the tasks, so they probably forbid one of the flags (forbidden_flags), or they "
        "cannot keep up.",
        "Start a worker that does not forbid them, or wait until the flag is no longer forbidden.",
    )  # fmt: skip


def _slow(tasks: list[ReadyTask], running: RunningTasks) -> Finding:
    names = {task.task_identifier for task in tasks}
    pools = [pool for pool in running.pools if names.intersection(pool.tasks or ())]
    slots = sum(pool.concurrency or 0 for pool in pools)
    busy = sum(min(len(pool.running or ()), pool.concurrency or 0) for pool in pools)
    is_known = all(pool.running is not None for pool in pools)
    load = f"; {busy} of their {slots} slots are busy" if is_known else ""
    return _finding(
        tasks, "wait, although running workers have the tasks",
        f"The workers cannot keep up, or cannot fetch jobs{load}.",
        "Raise --jobs or --processes, or start more workers. If slots are free, see the log of the workers.",
    )  # fmt: skip


def _in_queues(tasks: list[ReadyTask]) -> Finding:
    locked = [
        f"{queue} (paused)" if pool == PAUSED_BY else f"{queue} by {pool}"
        for queue, pool in dict.fromkeys((task.queue_name, task.locked_by) for task in tasks)
    ]
    return _finding(
        tasks, "wait for their named queue, which is locked",
        f"A named queue runs one job at a time. Locked: {some(locked)}.",
        "See `graphile-worker queues`, and `graphile-worker workers` for what these pools run.",
        severity="info",
    )  # fmt: skip


def _finding(
    tasks: list[ReadyTask], what: str, meaning: str, advice: str, *, severity: Severity = "warning"
) -> Finding:
    names = some([f"{task.task_identifier} ({task.number}, {duration(task.age, units=1)})" for task in tasks])
    return Finding("waiting", severity, f"jobs {what}: {names}", meaning, advice)


def check_limits(found: Sequence[JobsOutsideLimit]) -> Iterator[Finding]:
    """Limited tasks that pools of Node or Rust run; nothing if there are no limits."""
    outside = [row for row in found if row.jobs]
    for row in outside:
        yield Finding(
            "limits", "warning",
            f"{row.locked_by} runs {count(row.jobs, 'job')} of {row.task_identifier} and does not keep the "
            f"limit {row.limit_name!r}",
            "Only Python workers that register with the database keep limits. More jobs may run at once, and "
            "more may start, than the limit says.",
            f"Register the task {row.task_identifier} in Python workers only, with recovery turned on.",
        )  # fmt: skip
    names = {row.limit_name for row in found}
    if names and not outside:
        yield well("limits", f"{count(len(names), 'limit')}; no worker ignores one")


LATE = timedelta(minutes=1)
"""Workers end the pause of a queue within seconds."""


def check_pauses(pauses: Sequence[Pause]) -> Iterator[Finding]:
    """Pauses, and pauses of queues whose time is over."""
    if not pauses:
        yield well("pauses", "nothing is paused")
        return
    now = datetime.now(UTC)
    over = [pause for pause in pauses if pause.until is not None and pause.until < now - LATE]
    if over:
        names = [pause.queue_name or "" for pause in over]
        flags = " ".join(f"--queue {shlex.quote(name)}" for name in names[:5])
        yield Finding(
            "pauses", "warning", f"queues are still paused although their time is over: {some(names)}",
            "A Python worker resumes a queue when its time has come, and none has done it.",
            f"graphile-worker resume {flags}, or start a Python worker.",
        )  # fmt: skip
    others = [pause for pause in pauses if pause not in over]
    if others:
        yield Finding(
            "pauses", "info", f"paused: {some([pause.what + pause.terms for pause in others])}",
            "Their jobs wait, and running ones go on. Node and Rust workers obey pauses of queues only.",
            "To resume them: `graphile-worker resume`, with `--queue NAME`, `--task TASK` or `--all`.",
        )  # fmt: skip
