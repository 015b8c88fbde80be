"""The checker finds each violation in a history made by hand, and none where there is an excuse."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chaos.checker import check
from chaos.history import (
    Added,
    Fault,
    FinishedRow,
    History,
    JobRow,
    Limits,
    Paused,
    QueueRow,
    Run,
    Waited,
    Worker,
)

ONE = Worker(name="one", mode="default", pools=["pool-one"], started=0.0)
TWO = Worker(name="two", mode="default", pools=["pool-two"], started=0.0)
DEAD = Worker(
    name="dead", mode="default", pools=["pool-dead"], started=0.0, ended=12.0, ending="killed", status=-9
)
KILL = Fault(kind="kill", at=12.0, until=12.0, workers=["dead"])
BEATING = msgspec.structs.replace(ONE, shows_by="heartbeat")
JOB = Added(number=1, token="t", job_id=7, at=1000.0)
KEPT = msgspec.structs.replace(JOB, kept=True)
END = FinishedRow(job_id=7, state="completed", token="t")


def run(worker: str = "one", started: float = 10.0, ended: float | None = 11.0, **values: Any) -> Run:
    values.setdefault("outcome", None if ended is None else "end")
    values.setdefault("token", "t")
    return Run(worker=worker, pool=f"pool-{worker}", job_id=7, started=started, ended=ended, **values)


def history(**values: Any) -> History:
    filled: dict[str, Any] = {
        "seed": 1,
        "workers": [ONE, TWO],
        "added": [JOB],
        "runs": [run()],
        "faults": [],
        "jobs": [],
        "queues": [],
        "last_fault_at": 50.0,
        "seen_at": 100.0,
        "limits": Limits(aftermath=4.0),
    }
    return History(**(filled | values))


def broken(**values: Any) -> list[str]:
    """The rules that such a history breaks."""
    return sorted({violation.rule for violation in check(history(**values))})


def row(**values: Any) -> JobRow:
    filled: dict[str, Any] = {"id": 7, "token": "t"}
    return JobRow(**(filled | values))


def test_a_job_that_was_added_and_ran_is_all_right() -> None:
    assert check(history()) == []


# -- nothing is lost -----------------------------------------------------------------------------------------


def test_a_committed_job_that_never_ran_and_is_gone_is_found() -> None:
    (violation,) = check(history(runs=[]))
    assert violation.rule == "every_committed_job_ran_or_waits"
    assert violation.sentence == "job 7 (t) was committed, never ended, and is gone; it was never run"


def test_a_run_that_was_cut_short_is_no_end() -> None:
    values = {"workers": [ONE, DEAD], "faults": [KILL]}
    assert broken(runs=[run("dead", ended=None)], **values) == ["every_committed_job_ran_or_waits"]
    assert broken(runs=[run(outcome="cancelled")]) == ["every_committed_job_ran_or_waits"]


def test_a_job_may_wait() -> None:
    assert broken(runs=[], jobs=[row()]) == []


def test_a_job_may_fail_for_good_only_by_its_own_fault() -> None:
    spent = row(attempts=2, max_attempts=2)
    failed = [
        run(outcome="failed", attempts=1),
        run(started=20.0, ended=21.0, outcome="failed", attempts=2),
    ]
    always = msgspec.structs.replace(JOB, fails="always", max_attempts=2)
    assert broken(added=[always], runs=failed, jobs=[spent]) == []
    assert "every_committed_job_ran_or_waits" in broken(added=[always], runs=failed[:1], jobs=[spent])
    assert "every_committed_job_ran_or_waits" in broken(runs=failed, jobs=[spent])


def test_a_job_may_be_given_up_after_its_workers_died_too_often_and_not_before() -> None:
    given_up = row(attempts=25, last_error="Given up: the worker that ran this job died 6 times")
    deaths = [
        Worker(name=f"w{n}", mode="", pools=[], started=0.0, ended=11.0 + n, ending="killed")
        for n in range(6)
    ]
    runs = [run(f"w{n}", started=10.5 + n, ended=None) for n in range(6)]
    assert broken(workers=deaths, runs=runs, jobs=[given_up]) == []
    assert "every_committed_job_ran_or_waits" in broken(workers=deaths, runs=runs[:5], jobs=[given_up])


def test_what_was_rolled_back_must_not_run() -> None:
    assert broken(runs=[run(), run(token="x")]) == ["nothing_uncommitted_ran"]


# -- nothing runs twice --------------------------------------------------------------------------------------


def test_a_second_run_after_the_end_is_found() -> None:
    assert broken(runs=[run(), run("two", 20.0, 21.0)]) == ["no_job_ran_twice"]


def test_a_second_run_during_the_first_is_found() -> None:
    assert broken(runs=[run(), run("two", 10.5, 11.5)]) == ["no_job_ran_twice"]


def test_a_kill_soon_after_the_end_excuses_a_second_run() -> None:
    values = {"workers": [ONE, DEAD], "faults": [KILL]}
    assert broken(runs=[run("dead"), run(started=20.0, ended=21.0)], **values) == []
    assert broken(runs=[run("dead", 8.0, None), run(started=20.0, ended=21.0)], **values) == []


def test_a_kill_long_after_the_end_is_no_excuse() -> None:
    values = {"workers": [ONE, DEAD], "faults": [KILL]}
    runs = [run("dead", 1.0, 2.0), run(started=20.0, ended=21.0)]
    assert broken(runs=runs, **values) == ["no_job_ran_twice"]


def test_a_kill_of_somebody_else_is_no_excuse() -> None:
    values = {"workers": [ONE, TWO, DEAD], "faults": [KILL]}
    assert broken(runs=[run(), run("two", 20.0, 21.0)], **values) == ["no_job_ran_twice"]


@pytest.mark.parametrize("kind", ["partition", "terminate", "restart"])
def test_a_cut_off_excuses_a_second_run_while_it_lasts_and_a_little_longer(kind: Any) -> None:
    fault = Fault(kind=kind, at=9.0, until=12.0, workers=["one"])
    assert broken(runs=[run(), run("two", 14.0, 15.0)], faults=[fault]) == []
    assert broken(runs=[run(started=15.0, ended=15.5), run("two", 18.0, 19.0)], faults=[fault]) == []
    late = [run(started=16.5, ended=17.0), run("two", 18.0, 19.0)]
    assert broken(runs=late, faults=[fault]) == ["no_job_ran_twice"]


def test_a_worker_that_is_stopped_keeps_its_jobs_if_it_lives_by_a_lock() -> None:
    fault = Fault(kind="stop", at=10.5, until=15.0, workers=["one"])
    runs = [run(ended=15.5), run("two", 14.0, 15.0)]
    assert broken(runs=runs, faults=[fault]) == ["no_job_ran_twice"]
    assert broken(workers=[BEATING, TWO], runs=runs, faults=[fault]) == []
    cut = Fault(kind="terminate", at=8.0, until=8.0, workers=["one"])
    assert broken(runs=runs, faults=[cut, fault]) == []  # it could not connect again


def test_a_worker_that_did_not_know_that_it_had_lost_a_job_is_excused() -> None:
    fault = Fault(kind="partition", at=5.0, until=15.0, workers=["two"])
    assert broken(runs=[run(), run("two", 14.0, 14.5)], faults=[fault]) == []


# -- queues and keys -----------------------------------------------------------------------------------------


def test_two_jobs_of_one_queue_at_once_are_found() -> None:
    other = Added(number=2, token="u", job_id=8)
    first = run(queue="q")
    second = msgspec.structs.replace(run("two", 10.9, 11.5, token="u", queue="q"), job_id=8)
    assert broken(added=[JOB, other], runs=[first, second]) == ["no_queue_ran_two_jobs_at_once"]
    later = msgspec.structs.replace(second, started=11.0)
    assert broken(added=[JOB, other], runs=[first, later]) == []
    elsewhere = msgspec.structs.replace(second, queue="r")
    assert broken(added=[JOB, other], runs=[first, elsewhere]) == []
    fault = Fault(kind="partition", at=9.0, until=10.8, workers=["one"])
    assert broken(added=[JOB, other], runs=[first, second], faults=[fault]) == []


def test_an_older_payload_taken_up_after_a_newer_was_added_is_found() -> None:
    old = msgspec.structs.replace(JOB, key="k")
    new = Added(number=2, token="u", job_id=8, key="k", at=1005.0)
    newest = msgspec.structs.replace(run("two", 30.0, 31.0, token="u"), job_id=8)
    assert broken(added=[old, new], runs=[run(locked_at=1004.0), newest]) == []
    assert broken(added=[old, new], runs=[newest]) == []  # replaced before it ran
    assert broken(added=[old, new], runs=[run(locked_at=1006.0), newest]) == ["no_key_fell_back"]
    assert broken(added=[old, new], runs=[run()]) == ["every_committed_job_ran_or_waits"]


# -- what is left --------------------------------------------------------------------------------------------


def test_locks_of_the_dead_are_found_once_the_time_is_over() -> None:
    values: dict[str, Any] = {"workers": [ONE, DEAD], "faults": [KILL], "runs": [run("dead", ended=None)]}
    locked = [row(attempts=1, locked_by="pool-dead", queue="q")]
    queues = [QueueRow(name="q", locked_by="pool-dead")]
    assert broken(jobs=locked, **values) == ["nothing_is_locked_by_the_dead"]
    assert broken(jobs=locked, queues=queues, seen_at=79.0, **values) == []
    sentences = [violation.sentence for violation in check(history(jobs=locked, queues=queues, **values))]
    assert sentences == [
        "job 7 (t) is locked by the dead pool pool-dead 50 s after the last fault",
        "queue q is locked by the dead pool pool-dead 50 s after the last fault",
    ]


def test_a_queue_that_a_live_pool_holds_without_a_job_is_found() -> None:
    queues = [QueueRow(name="q", locked_by="pool-one")]
    assert broken(queues=queues) == ["no_queue_is_held_for_nothing"]
    assert broken(runs=[], queues=queues, jobs=[row(attempts=1, locked_by="pool-one", queue="q")]) == []


def test_a_job_that_ended_and_is_still_there_is_found() -> None:
    left = row(attempts=1, locked_by="pool-one")
    assert broken(jobs=[left]) == ["what_ended_was_written"]
    assert broken(jobs=[left], seen_at=15.0) == []
    fault = Fault(kind="restart", at=12.0, until=13.0, workers=["one"])
    assert broken(jobs=[left], faults=[fault]) == []


def test_a_job_that_nobody_takes_up_is_found() -> None:
    assert broken(runs=[], jobs=[row(due_for=40.0)]) == ["nothing_due_is_left_waiting"]
    assert broken(runs=[], jobs=[row(due_for=40.0)], seen_at=70.0) == []
    assert broken(runs=[], jobs=[row(due_for=-5.0)]) == []


# -- attempts ------------------------------------------------------------------------------------------------


def test_an_attempt_that_was_not_counted_is_found() -> None:
    assert broken(runs=[run(attempts=0)]) == ["attempts_count_what_happened"]
    again = run(started=20.0, ended=21.0, attempts=1)
    assert broken(runs=[run(outcome="failed"), again]) == ["attempts_count_what_happened"]


def test_an_attempt_that_was_cut_short_does_not_count() -> None:
    values = {"workers": [ONE, DEAD], "faults": [KILL]}
    cut = run("dead", ended=None)
    assert broken(runs=[cut, run(started=20.0, ended=21.0, attempts=1)], **values) == []
    counted = run(started=20.0, ended=21.0, attempts=2)
    assert broken(runs=[cut, counted], **values) == ["attempts_count_what_happened"]


def test_a_failure_that_may_not_have_been_written_may_count_or_not() -> None:
    values = {"workers": [ONE, DEAD], "faults": [KILL]}
    failed = run("dead", outcome="failed")
    for attempts in (1, 2):
        assert broken(runs=[failed, run(started=20.0, ended=21.0, attempts=attempts)], **values) == []
    third = run(started=20.0, ended=21.0, attempts=3)
    assert broken(runs=[failed, third], **values) == ["attempts_count_what_happened"]


def test_the_attempts_of_a_job_that_waits_are_those_that_failed() -> None:
    failed = [run(outcome="failed")]
    assert broken(runs=failed, jobs=[row(attempts=1)]) == []
    assert broken(runs=failed, jobs=[row(attempts=0)]) == ["attempts_count_what_happened"]
    assert broken(runs=failed, jobs=[row(attempts=2)]) == ["attempts_count_what_happened"]


# -- workers -------------------------------------------------------------------------------------------------


def test_a_worker_that_ends_by_itself_is_found() -> None:
    ended = msgspec.structs.replace(TWO, ended=20.0, ending="ended", status=1)
    assert broken(workers=[ONE, ended]) == ["no_worker_ended_by_itself"]


def test_a_worker_may_fail_to_start_while_the_server_is_away() -> None:
    failed = msgspec.structs.replace(TWO, started=20.0, ended=21.0, ending="not started", status=3)
    fault = Fault(kind="restart", at=20.5, until=23.0, workers=["one"])
    assert broken(workers=[ONE, failed], faults=[fault]) == []
    assert broken(workers=[ONE, failed]) == ["no_worker_ended_by_itself"]


# -- what is kept --------------------------------------------------------------------------------------------


def test_a_kept_job_with_one_end_is_all_right() -> None:
    assert broken(added=[KEPT], ends=[END]) == []
    assert broken(added=[JOB], ends=[]) == []


def test_a_kept_job_without_an_end_is_found() -> None:
    assert broken(added=[KEPT], ends=[]) == ["every_kept_job_is_there"]


def test_a_permanent_failure_without_an_end_is_found() -> None:
    failing = msgspec.structs.replace(JOB, fails="always", max_attempts=1)
    failed = {"added": [failing], "runs": [run(outcome="failed")], "jobs": [row(attempts=1, max_attempts=1)]}
    assert broken(**failed, ends=[]) == ["every_kept_job_is_there"]
    assert broken(**failed, ends=[FinishedRow(job_id=7, state="failed")]) == []


@pytest.mark.parametrize(
    "values",
    [
        {"added": [KEPT], "ends": [END, END]},
        {"added": [JOB], "ends": [END]},
        {"added": [KEPT], "ends": [END], "runs": [run(outcome="cancelled"), run(outcome=None, ended=None)]},
        {"added": [KEPT], "ends": [END, FinishedRow(job_id=8, state="failed")]},
        {"added": [KEPT], "ends": [END, FinishedRow(job_id=7, state="cancelled")]},
    ],
    ids=["two", "not to be kept", "no run ended", "no run failed", "not superseded"],
)
def test_an_end_without_its_job_is_found(values: dict[str, Any]) -> None:
    assert "no_end_without_its_job" in broken(**values)


def test_a_job_whose_key_was_used_again_may_have_a_cancelled_end() -> None:
    first = msgspec.structs.replace(JOB, key="k")
    second = msgspec.structs.replace(first, number=2, token="u", job_id=8)
    runs = [run(token="u", locked_at=1001.0)]
    assert broken(added=[first, second], runs=runs, ends=[FinishedRow(job_id=7, state="cancelled")]) == []


def limited_runs(*starts: float, worker: str = "one") -> list[Run]:
    return [run(worker, start, start + 1.0, token=f"{start}/limited") for start in starts]


@pytest.mark.parametrize(
    ("runs", "is_broken"),
    [
        (limited_runs(10.0, 10.5), False),
        (limited_runs(10.0, 10.5, 11.2), False),
        (limited_runs(10.0, 10.5, 10.9), True),
        ([*limited_runs(10.0, 10.5, worker="two"), *limited_runs(10.9)], True),
    ],
)
def test_a_limit_that_is_exceeded_is_found(runs: list[Run], is_broken: bool) -> None:
    assert ("no_limit_was_exceeded" in broken(runs=runs)) is is_broken


def test_jobs_of_a_killed_worker_do_not_count_for_a_limit() -> None:
    cut = [run("dead", start, None, token=f"{start}/limited") for start in (11.5, 11.6)]
    found = broken(workers=[ONE, TWO, DEAD], faults=[KILL], runs=[*cut, *limited_runs(12.5, 12.6)])
    assert "no_limit_was_exceeded" not in found


# -- widths and pauses ---------------------------------------------------------------------------------------


def wide_runs(*starts: float, worker: str = "one", queue: str = "wide 0") -> list[Run]:
    return [run(worker, start, start + 1.0, token=f"{queue} {start}", queue=queue) for start in starts]


@pytest.mark.parametrize(
    ("runs", "is_broken"),
    [
        (wide_runs(10.0, 10.1, 10.2, 11.05), False),
        (wide_runs(10.0, 10.1, 10.2, 10.9), True),
        ([*wide_runs(10.0, 10.1, worker="two"), *wide_runs(10.2, 10.9)], True),
        ([*wide_runs(10.0, 10.1), *wide_runs(10.2, 10.9, queue="wide 1")], False),
    ],
)
def test_a_concurrency_that_is_exceeded_is_found(runs: list[Run], is_broken: bool) -> None:
    found = broken(runs=runs)
    assert ("no_queue_concurrency_was_exceeded" in found) is is_broken
    assert "no_queue_ran_two_jobs_at_once" not in found


def test_jobs_of_a_killed_worker_do_not_count_for_a_concurrency() -> None:
    cut = [run("dead", start, None, token=f"{start}", queue="wide 0") for start in (11.5, 11.6)]
    found = broken(workers=[ONE, TWO, DEAD], faults=[KILL], runs=[*cut, *wide_runs(12.5, 12.6)])
    assert "no_queue_concurrency_was_exceeded" not in found


QUEUE_PAUSE = Paused(kind="queue", name="q", began=20.0, ended=30.0, began_at=1020.0, ended_at=1030.0)
TASK_PAUSE = Paused(kind="task", name="work", began=20.0, ended=30.0, began_at=1020.0, ended_at=1030.0)


@pytest.mark.parametrize(
    ("locked_at", "queue", "is_broken"),
    [
        (1019.9, "q", False),
        (1020.1, "q", True),
        (1029.9, "q", True),
        (1030.1, "q", False),
        (1025.0, "another", False),
    ],
)
def test_a_job_of_a_paused_queue_that_is_locked_is_found(
    locked_at: float, queue: str, is_broken: bool
) -> None:
    """Whatever its worker knows of the pause."""
    taken = run(started=20.5, ended=21.0, locked_at=locked_at, queue=queue)
    partition = Fault(kind="partition", at=15.0, until=25.0, workers=["one"])
    found = broken(runs=[taken], pauses=[QUEUE_PAUSE], faults=[partition])
    assert ("nothing_paused_was_taken" in found) is is_broken


@pytest.mark.parametrize("pause", [QUEUE_PAUSE, TASK_PAUSE, Paused(kind="all", began=20.0, ended=30.0)])
@pytest.mark.parametrize(
    ("started", "is_broken"), [(19.0, False), (21.9, False), (22.1, True), (29.9, True), (30.1, False)]
)
def test_a_paused_job_that_is_started_is_found(pause: Paused, started: float, is_broken: bool) -> None:
    begun = run(started=started, ended=started + 1.0, queue="q", task="work")
    assert ("nothing_paused_was_started" in broken(runs=[begun], pauses=[pause])) is is_broken


def test_a_worker_that_could_not_know_may_start_a_paused_job() -> None:
    def found(started: float, worker: Worker = ONE, **values: Any) -> list[str]:
        begun = run(started=started, ended=started + 1.0, task="work")
        return broken(runs=[begun], pauses=[TASK_PAUSE], workers=[worker], **values)

    rule = ["nothing_paused_was_started"]
    assert found(25.0, BEATING) == []  # it looks every five seconds
    assert found(27.5, BEATING) == rule
    cut = [Fault(kind="terminate", at=19.0, until=19.0, workers=["one"])]
    assert (found(22.5, faults=cut), found(23.5, faults=cut)) == ([], rule)
    stop = [Fault(kind="stop", at=19.0, until=24.0, workers=["one"])]
    assert (found(24.1, faults=stop), found(26.5, faults=stop)) == ([], rule)
    assert found(25.0, faults=[Fault(kind="partition", at=10.0, until=12.0, workers=["one"])]) == []


def test_a_worker_that_was_cut_off_may_count_what_another_has_completed_but_only_once_it_is_gone() -> None:
    cut = [Fault(kind="partition", at=10.9, until=20.0, workers=["one"])]
    again = run("two", 15.0, 16.0, written=16.1)
    late, early = run(written=21.0), run(written=11.1)
    assert broken(runs=[late, again], faults=cut) == []
    assert broken(runs=[early, again], faults=cut) == ["no_end_is_written_twice"]
    assert "no_end_is_written_twice" in broken(runs=[late, again])


# -- held jobs -----------------------------------------------------------------------------------------------

HELD: dict[str, Any] = {"is_held": True, "least_held": 0}
CUT = Fault(kind="cut", at=11.0, until=11.0, workers=["one"], detail="cut before the commit", sessions=[42])
AGAIN = run("two", 12.0, 12.5, written=12.6)


def held(worker: str = "one", started: float = 10.9, ended: float | None = 10.95, **values: Any) -> Run:
    return run(worker, started, ended, held=True, session=42, **values)


def test_a_held_job_may_run_again_only_if_its_worker_was_killed_before_its_end_was_written() -> None:
    values: dict[str, Any] = {"workers": [ONE, TWO, DEAD], "faults": [KILL], **HELD}
    again = run("two", 20.0, 21.0, written=21.1)
    assert broken(runs=[held("dead", 11.0, 11.9), again], **values) == []
    assert broken(runs=[held("dead", 11.0, None), again], **values) == []
    known = held("dead", 11.0, 11.8, written=11.9)
    assert broken(runs=[known, again], **values) == ["no_end_is_written_twice", "no_job_ran_twice"]
    early = held("dead", 8.0, 9.0)  # a batch is over by then
    assert broken(runs=[early, again], **values) == ["every_end_is_settled", "no_job_ran_twice"]
    locked = run("dead", 11.0, 11.9)
    assert broken(runs=[locked, again], **values) == []
    limits = Limits(aftermath=4.0, grace=9.0)  # no one may have it so soon
    assert broken(runs=[locked, again], limits=limits, **values) == ["no_job_ran_twice"]
    before = run("two", 11.95, 12.5, written=12.6)
    assert broken(runs=[held("dead", 11.0, 11.9), before], **values) == ["no_job_ran_twice"]


def test_a_held_job_may_run_again_only_if_its_own_connection_was_lost() -> None:
    discarded = held(discarded=12.7)
    assert broken(runs=[discarded, AGAIN], faults=[CUT], **HELD) == []
    another = msgspec.structs.replace(CUT, sessions=[43])
    rules = ["no_job_ran_twice", "nothing_is_discarded_in_vain"]
    assert broken(runs=[discarded, AGAIN], faults=[another], **HELD) == rules
    elsewhere = msgspec.structs.replace(CUT, workers=["two"])
    assert broken(runs=[discarded, AGAIN], faults=[elsewhere], **HELD) == rules
    late = msgspec.structs.replace(CUT, at=15.0, until=15.0)
    assert broken(runs=[discarded, AGAIN], faults=[late], **HELD) == rules
    assert broken(runs=[run(ended=10.5), AGAIN], faults=[CUT], seen_at=12.0, **HELD) == ["no_job_ran_twice"]


def test_a_worker_that_has_lost_a_batch_must_find_out_what_became_of_it() -> None:
    assert broken(runs=[held(written=11.5)], faults=[CUT], **HELD) == []
    assert broken(runs=[held()], faults=[CUT], **HELD) == ["every_end_is_settled"]
    found = ["every_end_is_settled", "no_job_ran_twice"]
    assert broken(runs=[held(), AGAIN], faults=[CUT], **HELD) == found
    assert broken(runs=[held(discarded=12.7)], faults=[CUT], **HELD) == ["nothing_is_discarded_in_vain"]
    assert broken(runs=[held(outcome="cancelled"), AGAIN], faults=[CUT], **HELD) == []


def test_a_job_that_was_settled_is_not_started_any_more() -> None:
    """Before that another worker may have completed it: then the row is gone, and both count it."""
    assert broken(runs=[held(written=12.7), AGAIN], faults=[CUT], **HELD) == []
    assert broken(runs=[held(written=11.5), AGAIN], faults=[CUT], **HELD) == ["no_job_ran_twice"]


def test_a_worker_that_starts_a_job_that_it_has_lost_is_excused() -> None:
    first = run("two", 11.1, 11.2, written=11.3)
    assert broken(runs=[first, held(started=11.15, ended=11.4, discarded=12.0)], faults=[CUT], **HELD) == []
    early = run("two", 10.5, 11.2, written=11.3)  # it cannot have had the job then
    second = held(started=11.15, ended=11.4, discarded=12.0)
    assert broken(runs=[early, second], faults=[CUT], **HELD) == ["no_job_ran_twice"]


def test_a_pool_that_runs_a_job_twice_at_once_is_found() -> None:
    first = held(ended=11.5, discarded=12.0)
    second = run(started=11.2, ended=11.4, written=11.45)
    assert broken(runs=[first, second], faults=[CUT], **HELD) == ["no_job_ran_twice"]


def test_a_live_worker_keeps_its_locked_jobs_whatever_becomes_of_its_connections() -> None:
    restart = msgspec.structs.replace(CUT, kind="restart", workers=["one", "two"])
    runs = [run(started=10.9, ended=10.95, discarded=12.7), AGAIN]
    assert "no_job_ran_twice" in broken(runs=runs, faults=[restart], **HELD)


def test_a_worker_that_is_asked_to_leave_must_do_so_cleanly() -> None:
    left = msgspec.structs.replace(TWO, ended=20.0, ending="left", status=0)
    assert broken(workers=[ONE, left]) == []
    failed = msgspec.structs.replace(left, status=1)
    assert broken(workers=[ONE, failed]) == ["no_worker_ended_by_itself"]


def test_a_pool_that_takes_no_job_when_all_is_quiet_is_found() -> None:
    second = Added(number=2, token="u", job_id=8)
    called = msgspec.structs.replace(run(started=90.0, ended=91.0, token="u"), job_id=8)
    values: dict[str, Any] = {"added": [JOB, second], "runs": [run(), called]}
    assert broken(**values) == []
    assert broken(called_at=80.0, **values) == ["every_worker_goes_on"]  # the second worker has none
    assert broken(called_at=80.0, workers=[ONE], **values) == []
    assert broken(called_at=80.0, workers=[ONE, DEAD], faults=[KILL], **values) == []


def test_a_run_that_should_hold_jobs_and_holds_few_is_found() -> None:
    values: dict[str, Any] = {"is_held": True, "runs": [held(written=11.0)]}
    assert broken(least_held=2, **values) == ["jobs_were_held"]
    assert broken(least_held=1, **values) == []


# -- no ready job waits beside a free slot -------------------------------------------------------------------

TWO_SLOTS = msgspec.structs.replace(ONE, slots=[2])
WAITED = Waited(job_id=8, token="w", task="work", began=20.0, ended=30.0)
WAITS = "no_ready_job_waits_beside_a_free_slot"


def waits(*, of: Waited = WAITED, **values: Any) -> bool:
    """Whether a wait of ten seconds is a violation; the only pool has two slots."""
    filled: dict[str, Any] = {"workers": [TWO_SLOTS], "waited": [of]}
    return WAITS in broken(**(filled | values))


def busy(token: str, started: float, ended: float | None, **values: Any) -> Run:
    return run(token=token, started=started, ended=ended, **values)


def test_a_job_that_waits_beside_a_free_slot_is_found() -> None:
    (violation,) = check(history(workers=[TWO_SLOTS], waited=[WAITED]))
    assert violation.rule == WAITS
    assert violation.sentence == (
        "job 8 (w) was ready from 20.000 to 30.000, "
        "and pool-one of worker one had a free slot for 10.0 s of that"
    )
    assert waits(runs=[run(), busy("a", 15.0, 40.0)])


def test_a_job_may_wait_for_a_poll_interval() -> None:
    assert not waits(of=msgspec.structs.replace(WAITED, ended=25.0))


def test_a_job_may_wait_while_all_slots_are_taken() -> None:
    assert not waits(runs=[busy("a", 15.0, 40.0), busy("b", 16.0, 27.0)])
    assert not waits(runs=[busy("a", 15.0, 40.0), busy("b", 16.0, 24.0), busy("c", 24.1, 29.0)])
    assert waits(runs=[busy("a", 15.0, 40.0), busy("b", 16.0, 21.0)])


def test_every_pool_counts() -> None:
    three = msgspec.structs.replace(TWO, slots=[1])
    full = [busy("a", 15.0, 40.0), busy("b", 16.0, 40.0)]
    assert waits(workers=[TWO_SLOTS, three], runs=full)
    full.append(run("two", started=17.0, ended=40.0, token="c"))
    assert not waits(workers=[TWO_SLOTS, three], runs=full)


def test_a_job_may_wait_while_every_worker_is_away_or_has_just_come_back() -> None:
    for started, ended in ((26.0, None), (0.0, 24.0)):
        ending = "alive" if ended is None else "killed"
        worker = msgspec.structs.replace(TWO_SLOTS, started=started, ended=ended, ending=ending)
        assert not waits(workers=[worker])
    stop = Fault(kind="stop", at=19.0, until=22.0, workers=["one"])
    assert not waits(faults=[stop])
    assert waits(faults=[msgspec.structs.replace(stop, workers=["two"])])


def test_a_job_may_wait_while_the_table_is_locked_or_the_event_loop_blocked() -> None:
    lock = Fault(kind="lock", at=19.0, until=25.0, workers=[])
    assert not waits(faults=[lock])
    assert waits(faults=[msgspec.structs.replace(lock, kind="unlock")])
    assert waits(faults=[msgspec.structs.replace(lock, until=21.0)])
    assert not waits(runs=[run(), busy("a", 19.0, 25.0, task="work_blocking")])
    assert waits(runs=[run(), busy("a", 19.0, 21.0, task="work_blocking")])


def test_a_job_may_wait_while_it_is_paused_or_limited() -> None:
    pause = Paused(kind="all", began=19.0, ended=22.0)
    assert not waits(pauses=[pause])
    assert not waits(pauses=[msgspec.structs.replace(pause, kind="task", name="work")])
    assert waits(pauses=[msgspec.structs.replace(pause, kind="task", name="work_in_thread")])
    assert not waits(of=msgspec.structs.replace(WAITED, task="work_limited"))
