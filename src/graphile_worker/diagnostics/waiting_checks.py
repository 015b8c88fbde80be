"""Checks of waiting jobs: why they wait, what is paused, and whether jobs run that no limit counts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ..database.statements.inspection import ReadyTask
from ..values.job import Pause
from ..values.text import count, duration
from .explanation.facts import ReadyFacts
from .explanation.ready import decide_ready
from .explanation.values import Explanation, ExplanationKind, words
from .facts import JobsOutsideLimit, Waiting
from .finding import Finding, Severity, Thresholds, some, well

SHOWN = 5
"""Sentences of evidence."""
LATE = timedelta(minutes=1)
"""Workers end the pause of a queue within seconds."""


class _Advice(NamedTuple):
    """What it means that jobs of some tasks wait for a reason, and what to do."""

    meaning: str
    advice: str
    severity: Severity = "warning"


_PAUSED = _Advice(
    "An operator has paused it.",
    "See `graphile-worker pause`, and `graphile-worker resume` to end it.",
    "info",
)
_QUEUE = _Advice(
    "A named queue runs one job at a time.",
    "See `graphile-worker queues`, and `graphile-worker workers` for what these pools run.",
    "info",
)
_LIMIT = _Advice("", "See `graphile-worker limits`; a limit can be raised without a restart.", "info")
_SEE_WORKERS = "See the findings about workers, and `graphile-worker workers`."
_ADVICE: dict[ExplanationKind, _Advice] = {
    "paused_everything": _PAUSED,
    "paused_task": _PAUSED,
    "paused_queue": _PAUSED,
    "queue_busy": _QUEUE,
    "queue_lock_lost": _QUEUE,
    "workers_unknown": _Advice(
        "No worker may be running, or none that has the tasks.",
        "Run `graphile-worker migrate`; start a worker that has the tasks.",
    ),
    "no_worker": _Advice(
        "Jobs run only while a worker is running.", "Start one that has the tasks: graphile-worker"
    ),
    "unknown_task": _Advice(
        "The name is misspelt, or the workers have other code.", "Start a worker that has the task."
    ),
    "workers_paused": _Advice(
        "They finish their running jobs.", "Start other workers, or resume these on the dashboard."
    ),
    "limit_concurrency": _LIMIT,
    "limit_rate": _LIMIT,
    "flags": _Advice(
        "Workers take only jobs whose flags their options allow.",
        "Start a worker that takes them: see forbidden_flags, accepted_flags and flag_allowlist.",
    ),
    "slots_busy": _Advice(
        "The workers cannot keep up.", "Raise --jobs or --processes, or start more workers."
    ),
    "blocked_loop": _Advice("Nothing else runs in such a process.", _SEE_WORKERS),
    "not_listening": _Advice("Jobs start later than they could.", _SEE_WORKERS),
    "clock": _Advice("Jobs start too early or too late.", "Enable time synchronisation (NTP, chrony)."),
    "overdue": _Advice("The workers cannot fetch jobs.", "See the log of the workers."),
}


def check_waiting(waiting: Waiting, thresholds: Thresholds) -> Iterator[Finding]:
    """Tasks whose jobs have been ready for long: one finding for each reason."""
    now, fresh = datetime.now(UTC), thresholds.waiting_age
    late = [task for task in waiting.ready if task.age >= fresh]
    reasons: dict[ExplanationKind, list[tuple[ReadyTask, Explanation]]] = {}
    for task in late:
        explanation = decide_ready(ReadyFacts.of_task(task, waiting.pools, now, fresh=fresh))
        reasons.setdefault(explanation.kind, []).append((task, explanation))
    for kind, found in reasons.items():
        if kind in _ADVICE:
            yield _finding(kind, found, python="Python " if waiting.pools.has_others else "")
    if not late:
        yield well("waiting", "no job has been waiting for long")


def _finding(kind: ExplanationKind, found: list[tuple[ReadyTask, Explanation]], *, python: str) -> Finding:
    names = some(
        [f"{task.task_identifier} ({task.number}, {duration(task.age, units=1)})" for task, _ in found]
    )
    meaning, advice, severity = _ADVICE[kind]
    reason = words(kind, python=python)
    if kind == "unknown_task":
        advice += f" To list the jobs: graphile-worker list --task {shlex.quote(found[0][0].task_identifier)}"
    return Finding(
        "waiting", severity, f"{reason}; waiting: {names}",
        " ".join([meaning, *_evidence(kind, reason, [explanation for _, explanation in found])]).strip(),
        advice,
    )  # fmt: skip


def _evidence(kind: ExplanationKind, reason: str, found: Sequence[Explanation]) -> list[str]:
    """What the explanations say beyond the reason and the names of the tasks."""
    headlines = [
        each.headline
        for each in found
        if each.headline.rstrip(".").casefold() != reason.casefold()
        and (kind != "unknown_task" or each.headline.endswith("?"))
    ]
    evidence = dict.fromkeys(line for each in found for line in each.evidence)
    return [*list(dict.fromkeys(headlines))[:SHOWN], *list(evidence)[:SHOWN]]


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
            "Their jobs wait, and running ones finish. Node and Rust workers obey pauses of queues only.",
            "To resume them: `graphile-worker resume`, with `--queue NAME`, `--task TASK` or `--all`.",
        )  # fmt: skip
