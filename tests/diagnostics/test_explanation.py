"""Why jobs do not run: facts in, explanation out. No database is needed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

from graphile_worker.database.statements.inspection import JobDetails, ReadyTask
from graphile_worker.database.statements.limits import LimitSummary
from graphile_worker.diagnostics.explanation.decision import GONE, decide
from graphile_worker.diagnostics.explanation.facts import COUNTED, JobFacts, PoolFacts, QueueFacts
from graphile_worker.diagnostics.explanation.values import WORDS, ExplanationKind, words
from graphile_worker.diagnostics.facts import Waiting
from graphile_worker.diagnostics.finding import Thresholds
from graphile_worker.diagnostics.waiting_checks import _ADVICE, check_waiting
from graphile_worker.recovery.registry.pool_state import BlockedLoop
from graphile_worker.recovery.registry.workers import RunningJob, WorkerSummary, condition_of
from graphile_worker.testing import make_job
from graphile_worker.values.flags import FlagDescription
from graphile_worker.values.job import PAUSED_BY, Pause

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)
NO_SLOW = FlagDescription(("slow",))
ONLY_GPU = FlagDescription((), ("gpu",))
BLOCKED = BlockedLoop(task_identifier="b", job_id=77, since=NOW - timedelta(minutes=1), seconds=60.0)


def job(
    state: Any = "ready",
    *,
    age: float = 60.0,
    failed: float | None = None,
    made: int | None = None,
    **values: Any,
) -> JobDetails:
    """A job that became ready so many seconds ago."""
    at = NOW - timedelta(seconds=age)
    plain = make_job(values.pop("task", "a"), run_at=at, created_at=min(at, NOW), **{"attempts": 0} | values)
    columns = {name: getattr(plain, name) for name in plain.__struct_fields__}
    return JobDetails(**columns, queue_name="q", state=state, raw_failed_at=failed, attempts_made=made)


def pool(pool_id: str = "pool", **values: Any) -> WorkerSummary:
    """A pool on web-a that is alive and has the task a."""
    known: dict[str, Any] = {
        "host": "web-a", "pid": 7, "version": "1", "tasks": ["a"], "concurrency": 1, "liveness": "lock",
        "started_at": NOW, "last_seen_at": NOW, "is_alive": True, "dead_in": None, "jobs_held": 0,
        "running": [], "job_ids": [], "locked_since": None,
    }  # fmt: skip
    return WorkerSummary(id=pool_id, **(known | values))


def busy(job_id: int = 5, **values: Any) -> WorkerSummary:
    return pool(running=[RunningJob(job_id, NOW - timedelta(seconds=30))], jobs_held=1, **values)


def limit(**values: Any) -> LimitSummary:
    known: dict[str, Any] = {
        "name": "bank", "concurrency": None, "rate": None, "burst": None, "tasks": ("a",), "overridden": (),
        "set_at": None, "running": None, "may_start": None,
    }  # fmt: skip
    return LimitSummary(**(known | values))


def pools(*workers: WorkerSummary, **values: Any) -> PoolFacts:
    return PoolFacts(workers=list(workers), **values)


LOCKED: dict[str, Any] = {"locked_by": "pool", "locked_at": NOW - timedelta(minutes=2), "attempts": 1}
HELD_BY_POOL = QueueFacts("q", [("pool", 30.0)])

CASES: list[tuple[ExplanationKind, JobFacts, str]] = [
    (
        "running",
        JobFacts.of(job("running", id=5, **LOCKED), NOW, pools(busy()), usual=20.0),
        "It is running on web-a (process 7), for 30 s.",
    ),
    (
        "running_long",
        JobFacts.of(job("running", id=5, **LOCKED), NOW, pools(busy()), usual=2.0),
        "It is running on web-a (process 7), for 30 s, longer than usual.",
    ),
    (
        "prefetched",
        JobFacts.of(job("running", id=6, **LOCKED), NOW, pools(busy())),
        "web-a (process 7) has locked it and is about to run it.",
    ),
    (
        "cancelling",
        JobFacts.of(job("running", id=5, **LOCKED), NOW, pools(busy()), is_cancelled=True),
        "It is running on web-a (process 7) and was asked to end.",
    ),
    (
        "dead_worker",
        JobFacts.of(job("running", **LOCKED), NOW, pools(pool(is_alive=False, dead_in=0.0))),
        "Its worker web-a (process 7) is dead. The job comes back with the next sweep.",
    ),
    (
        "dead_worker",
        JobFacts.of(job("running", **LOCKED), NOW, pools(pool(is_alive=False, dead_in=90.0))),
        "Its worker web-a (process 7) is dead. The job comes back in 1 min 30 s.",
    ),
    (
        "unknown_worker",
        JobFacts.of(job("running", **LOCKED), NOW, pools()),
        "It is locked by pool, for 2 min; it is unknown whether that is alive.",
    ),
    (
        "stale_lock",
        JobFacts.of(job("running", **LOCKED | {"locked_at": NOW - timedelta(hours=5)}), NOW, pools()),
        "It has been locked by pool for 5 h: the lock is stale.",
    ),
    (
        "no_attempts",
        JobFacts.of(job("failed", attempts=3, max_attempts=3, failed=NOW.timestamp() - 60), NOW),
        "It failed permanently, 1 min ago.",
    ),
    (
        "no_attempts",
        JobFacts.of(job("failed", attempts=3, max_attempts=3, failed=NOW.timestamp() - 60, made=3), NOW),
        "It failed permanently, 1 min ago: all 3 attempts used.",
    ),
    (
        "no_attempts",
        JobFacts.of(job("failed", attempts=3, max_attempts=3, failed=NOW.timestamp() - 60, made=1), NOW),
        "It failed permanently, 1 min ago: gave up on attempt 1 of 3.",
    ),
    (
        "cancelled",
        JobFacts.of(job("failed"), NOW, is_cancelled=True),
        "It was cancelled. It will not run again.",
    ),
    ("later", JobFacts.of(job("scheduled", age=-7200), NOW), "It is due later: in 2 h."),
    (
        "retry_later",
        JobFacts.of(job("scheduled", age=-5, attempts=1), NOW),
        "It failed once and waits for its next attempt, in 5 s.",
    ),
    (
        "held",
        JobFacts.of(job(id=5), NOW, pools(busy())),
        "web-a (process 7) runs it, and holds it in an open transaction.",
    ),
    (
        "paused_everything",
        JobFacts.of(job(), NOW, pools(pool(), pauses=[Pause(reason="deploy")])),
        "Every task is paused (deploy).",
    ),
    (
        "paused_task",
        JobFacts.of(job(), NOW, pools(pool(), pauses=[Pause(task_identifier="a", paused_at=NOW)])),
        "The task a is paused.",
    ),
    (
        "paused_queue",
        JobFacts.of(job(), NOW, pools(pool(), pauses=[Pause(queue_name="q")])),
        "The queue q is paused.",
    ),
    (
        "paused_queue",
        JobFacts.of(job(), NOW, pools(pool()), queue=QueueFacts("q", [(PAUSED_BY, 30.0)])),
        "The queue q is paused.",
    ),
    (
        "queue_busy",
        JobFacts.of(job(), NOW, pools(busy()), queue=QueueFacts("q", [("pool", 30.0)], 1, [(5, "pool")])),
        "The queue q is busy with job 5, for 30 s.",
    ),
    (
        "queue_busy",
        JobFacts.of(job(), NOW, pools(busy()), queue=HELD_BY_POOL),
        "The queue q is busy on web-a (process 7), for 30 s.",
    ),
    (
        "queue_lock_lost",
        JobFacts.of(job(), NOW, pools(pool()), queue=HELD_BY_POOL),
        "The queue q is locked by pool, for 30 s, and no job of it is known to run.",
    ),
    ("workers_unknown", JobFacts.of(job(), NOW), "It is ready: nothing tells which workers are running."),
    ("no_worker", JobFacts.of(job(), NOW, pools(pool(is_alive=False))), "No worker is running."),
    ("no_worker", JobFacts.of(job(), NOW, pools(has_others=True)), "No Python worker is running."),
    (
        "unknown_task",
        JobFacts.of(job(task="send_emial"), NOW, pools(pool(tasks=["send_email"]))),
        "No running worker has the task send_emial; did you mean 'send_email'?",
    ),
    (
        "unknown_task",
        JobFacts.of(job(task="resize"), NOW, pools(pool(), has_others=True)),
        "No running Python worker has the task resize.",
    ),
    (
        "workers_paused",
        JobFacts.of(job(), NOW, pools(pool(), paused=frozenset({"pool"}))),
        "All workers that have the task are paused or stopping.",
    ),
    (
        "limit_concurrency",
        JobFacts.of(job(), NOW, pools(pool(), limits=[limit(concurrency=3, running=3)])),
        "The limit bank is reached: 3 of 3 jobs are running.",
    ),
    (
        "limit_rate",
        JobFacts.of(job(), NOW, pools(pool(), limits=[limit(rate=(5, timedelta(minutes=1)), may_start=0)])),
        "The limit bank has no start left: it allows 5 starts in 1 min.",
    ),
    (
        "flags",
        JobFacts.of(job(flags={"slow": True, "eu": True}), NOW, pools(pool(flag_rules=NO_SLOW))),
        "The worker with the task refuses the flags eu, slow.",
    ),
    (
        "flags",
        JobFacts.of(
            job(), NOW, pools(pool(flag_rules=ONLY_GPU), pool(flag_rules=FlagDescription((), ("eu",))))
        ),
        "All 2 workers with the task refuse jobs without flags.",
    ),
    (
        "flags",
        JobFacts.of(job(), NOW, pools(pool(flag_rules=FlagDescription(changing=("accepted_flags",))))),
        "The workers with the task may refuse jobs without flags.",
    ),
    (
        "flags",
        JobFacts.of(job(flags={"slow": True, "eu": True}), NOW, pools(pool())),
        "The workers with the task may refuse the flags eu, slow.",
    ),
    (
        "in_line",
        JobFacts.of(job(), NOW, pools(busy()), ahead=120, rate=2.0),
        "It is waiting in line: 120 jobs before it, about 1 min.",
    ),
    (
        "in_line",
        JobFacts.of(job(), NOW, pools(busy()), ahead=COUNTED, rate=2.0),
        "It is waiting in line: 1,000+ jobs before it.",
    ),
    (
        "slots_busy",
        JobFacts.of(job(), NOW, pools(busy()), ahead=0),
        "It is next: all slots of the workers with the task are busy.",
    ),
    (
        "blocked_loop",
        JobFacts.of(job(), NOW, pools(pool(blocked=BLOCKED))),
        "The event loop of web-a (process 7) is blocked, for 1 min.",
    ),
    (
        "not_listening",
        JobFacts.of(job(), NOW, pools(pool(is_listening=False))),
        "Notifications do not reach the workers with the task; they find jobs by polling.",
    ),
    (
        "clock",
        JobFacts.of(job(), NOW, pools(pool(clock=-30.0))),
        "The clock of a worker with the task is wrong.",
    ),
    (
        "overdue",
        JobFacts.of(job(), NOW, pools(pool())),
        "It has been ready for 1 min: workers with the task have free slots and do not take it.",
    ),
    (
        "soon",
        JobFacts.of(job(age=1.0), NOW, pools(pool())),
        "It is ready and should start within the poll interval.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "facts", "headline"), CASES, ids=[case[2][:40] for case in CASES])
def test_each_reason_has_its_sentence(kind: ExplanationKind, facts: JobFacts, headline: str) -> None:
    found = decide(facts)
    assert (found.kind, found.headline) == (kind, headline)
    assert all(line.endswith(".") for line in found.evidence)


def test_every_kind_is_tried() -> None:
    assert {case[0] for case in CASES} | {GONE.kind} == set(get_args(ExplanationKind))


def test_a_paused_schedule_is_no_reason_for_a_job() -> None:
    for name in ("nightly", "a"):
        assert decide(JobFacts.of(job(), NOW, pools(pauses=[Pause(schedule=name)]))).kind == "no_worker"
        (found,) = check_waiting(Waiting([ready()], pools(pauses=[Pause(schedule=name)])), Thresholds())
        assert found.summary.startswith("no worker is running;")


def test_a_job_that_is_never_due() -> None:
    never = JobFacts.of(job("scheduled", age=-200 * 366 * 86400), NOW)
    assert decide(never).headline == "It is never due."
    never = JobFacts.of(job("scheduled", age=-200 * 366 * 86400, attempts=2), NOW)
    assert decide(never).headline == "It failed 2 times, and its next attempt is never due."


def ready(task: str = "a", **values: Any) -> ReadyTask:
    known: dict[str, Any] = {
        "jobs": 2, "has_more": False, "age": 480.0, "in_locked_queues": 0, "queue_name": None,
        "locked_by": None, "free_age": 480.0, "flags": [],
    }  # fmt: skip
    return ReadyTask(task_identifier=task, **(known | values))


IN_QUEUE: dict[str, Any] = {"in_locked_queues": 2, "queue_name": "q", "locked_by": "pool", "free_age": None}

MANY: list[tuple[ExplanationKind, ReadyTask, PoolFacts]] = [
    ("paused_everything", ready(), pools(pauses=[Pause()])),
    ("paused_task", ready(), pools(pauses=[Pause(task_identifier="a")])),
    ("paused_queue", ready(**IN_QUEUE), pools(pauses=[Pause(queue_name="q")])),
    ("paused_queue", ready(**IN_QUEUE | {"locked_by": PAUSED_BY}), pools()),
    ("queue_busy", ready(**IN_QUEUE), pools(busy())),
    ("queue_lock_lost", ready(**IN_QUEUE), pools()),
    ("workers_unknown", ready(), PoolFacts()),
    ("no_worker", ready(), pools()),
    ("unknown_task", ready("b"), pools(pool())),
    ("workers_paused", ready(), pools(pool(), paused=frozenset({"pool"}))),
    ("limit_concurrency", ready(), pools(pool(), limits=[limit(concurrency=3, running=3)])),
    ("limit_rate", ready(), pools(pool(), limits=[limit(rate=(5, timedelta(minutes=1)), may_start=0)])),
    ("flags", ready(flags=["slow"]), pools(pool(flag_rules=NO_SLOW))),
    ("slots_busy", ready(), pools(busy())),
    ("blocked_loop", ready(), pools(pool(blocked=BLOCKED))),
    ("not_listening", ready(), pools(pool(is_listening=False))),
    ("clock", ready(), pools(pool(clock=30.0))),
    ("overdue", ready(), pools(pool())),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "task", "known"), MANY, ids=[case[0] for case in MANY])
def test_the_doctor_gives_the_same_reason_in_the_same_words(
    kind: ExplanationKind, task: ReadyTask, known: PoolFacts
) -> None:
    (found,) = check_waiting(Waiting([task], known), Thresholds())
    name = task.task_identifier
    assert found.summary == f"{words(kind)}; waiting: {name} (2 jobs, 8 min)"
    assert found.advice
    assert "{" not in found.summary + found.meaning


def test_every_reason_for_ready_jobs_has_words_and_an_advice() -> None:
    assert set(WORDS) == set(_ADVICE) == {case[0] for case in MANY}


def test_tasks_with_one_reason_are_one_finding() -> None:
    names: Sequence[str] = ("sned", "restore", "b")
    known = pools(pool(tasks=["a", "send"]))
    unknown, late = check_waiting(Waiting([*map(ready, names), ready()], known), Thresholds())
    assert unknown.summary == (
        "no running worker has the task; waiting: sned (2 jobs, 8 min), restore (2 jobs, 8 min), "
        "b (2 jobs, 8 min)"
    )
    assert unknown.meaning == (
        "The name is misspelt, or the workers have other code. No running worker has the task sned; did you "
        "mean 'send'? 1 worker running, with 2 tasks."
    )
    assert unknown.advice.endswith("graphile-worker list --task sned")
    assert late.summary.startswith(words("overdue"))


def test_fresh_jobs_outside_of_a_locked_queue_do_not_count() -> None:
    task = ready(**IN_QUEUE | {"in_locked_queues": 1, "free_age": 1.0})
    (found,) = check_waiting(Waiting([task], pools(busy())), Thresholds())
    assert found.severity == "info"
    assert "The queue q is busy on web-a (process 7)." in found.meaning
    (found,) = check_waiting(Waiting([ready(age=1.0)], pools(pool())), Thresholds())
    assert found.severity == "ok"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, ("alive", "alive")),
        ({"is_alive": None, "last_seen_at": None}, ("unknown", "sends no heartbeats")),
        ({"is_alive": False, "dead_in": 0.0}, ("dead", "dead; its jobs will be recovered")),
        ({"is_alive": False, "dead_in": 5.0}, ("late", "missed heartbeats, dead in 5 s")),
        ({"blocked": BLOCKED}, ("late", "blocked for 1 min by task b (job 77)")),
        ({"silent_for": 9.0}, ("late", "no heartbeat for 9 s")),
        ({"stalled_for": 9.0}, ("late", "no fetch has succeeded for 9 s")),
    ],
)
def test_the_condition_of_a_worker(values: dict[str, Any], words: tuple[str, str]) -> None:
    worker = pool(**values)
    assert condition_of(worker) == words
    assert worker.is_dead is (words[0] == "dead")
    assert worker.can_run("a") is bool(worker.is_alive)
    assert not worker.can_run("b")
