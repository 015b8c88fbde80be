"""The plan follows from the seed, and the table from the histories."""

from __future__ import annotations

import pytest

from chaos.checker import check
from chaos.history import Added, Fault, History, Limits, Run, Worker
from chaos.plan import CUTS, KILLS, Action, held_plan, plan
from chaos.report import held_counts, run_counts, sum_of, table
from chaos.settings import DEFAULT, HELD_MODES, HOLDING
from graphile_worker.values.options import WorkerOptions

KINDS = {"kill", "stop", "terminate", "restart", "partition", "lock", "unlock"}


def planned(seed: int, seconds: float = 15.0) -> list[Action]:
    return plan(seed, seconds=seconds, slots=6, pause=1.2, until_taken=3.6)


def test_the_same_seed_gives_the_same_plan_and_another_one_another() -> None:
    assert planned(7) == planned(7)
    assert planned(7) != planned(8)


@pytest.mark.parametrize("seed", range(1, 21))
def test_every_kind_of_fault_is_in_every_plan(seed: int) -> None:
    actions = planned(seed)
    assert {action.kind for action in actions} == KINDS
    assert all(0 < action.at < 15.0 and 0 <= action.slot < 6 for action in actions)
    assert all(action.lasts > 3.6 for action in actions if action.kind == "stop")


@pytest.mark.parametrize("seed", range(1, 21))
def test_deaths_come_last_where_jobs_are_held(seed: int) -> None:
    """While one is fresh, nothing is held."""
    turns = held_plan(seed, slots=3, holding=HOLDING)
    assert len(turns) == (2 if seed % 5 == 0 else 1)
    kinds = [action.kind for action in turns[0]]
    assert {*kinds} == KINDS | {"cut", "leave"}
    assert {(action.kind, action.how) for action in turns[0]} >= {("cut", how) for how in CUTS}
    for actions in turns:
        assert [action.kind for action in actions[-2:]] == ["kill", "kill"]
        assert {action.how for action in actions[-2:]} == {*KILLS}
        assert {action.slot for action in actions[-2:]} == {*HOLDING}
        assert all(action.kind != "kill" for action in actions[:-2])
        assert [action.at for action in actions] == sorted(action.at for action in actions)
    longest = max(action.lasts for actions in turns for action in actions)
    assert longest < DEFAULT.recovery_grace / 2, "a live worker could count as dead"


def test_the_default_settings_are_those_of_the_product() -> None:
    assert WorkerOptions.from_mapping(DEFAULT.options) == WorkerOptions()
    (_, (changed,)) = (HELD_MODES[HOLDING[1]].name, HELD_MODES[HOLDING[1]].pools)
    assert changed == {}
    (changed,) = HELD_MODES[HOLDING[0]].pools
    assert changed.keys() == {"concurrency"}


def test_what_became_of_held_jobs_is_told_in_numbers() -> None:
    history = History(
        seed=7,
        workers=[
            Worker(name="one", mode="default", pools=[], started=0.0, ended=10.0, ending="killed"),
            Worker(name="two", mode="default", pools=[], started=0.0),
        ],
        added=[],
        runs=[
            Run(
                worker="one", pool="1", job_id=1, token="t", started=9.8, ended=9.9, outcome="end", session=5,
                held=True,
            ),
            Run(worker="two", pool="2", job_id=1, token="t", started=14.5, ended=15.0, outcome="end"),
            Run(worker="one", pool="1", job_id=2, token="u", started=9.0, session=5, held=True),
            Run(
                worker="two", pool="2", job_id=3, token="v", started=20.0, ended=20.1, outcome="end",
                session=6, held=True, written=20.5,
            ),
        ],
        faults=[
            Fault(kind="kill", at=10.0, until=10.0, workers=["one"]),
            Fault(
                kind="cut", at=20.2, until=20.2, workers=["two"], detail="cut after the commit", sessions=[6]
            ),
        ],
        jobs=[],
        queues=[],
        last_fault_at=10.0,
        seen_at=50.0,
        limits=Limits(aftermath=4.0),
        is_held=True,
    )  # fmt: skip
    found = held_counts(history)
    assert (found.held, found.kills_in_hold, found.kills_after_hold) == (3, 1, 1)
    assert (found.lost_batches, found.settled) == ({"cut after the commit": 1}, 1)
    assert found.excuses == {"killed in hold": 1}
    both = sum_of([found, found])
    assert (both.held, both.excuses) == (6, {"killed in hold": 2})


def test_a_run_is_told_in_numbers() -> None:
    history = History(
        seed=7,
        workers=[
            Worker(name="one", mode="default", pools=[], started=0.0, ended=10.0, ending="killed"),
            Worker(name="two", mode="default", pools=[], started=0.0),
        ],
        added=[Added(number=1, token="t", job_id=1), Added(number=2, token="u", job_id=2)],
        runs=[
            Run(worker="one", pool="", job_id=1, token="t", started=9.0),
            Run(worker="one", pool="", job_id=2, token="u", started=9.0, ended=9.9, outcome="end", held=True),
            Run(worker="two", pool="", job_id=1, token="t", started=14.5, ended=15.0, outcome="end"),
            Run(worker="two", pool="", job_id=2, token="u", started=15.0, ended=15.5, outcome="end"),
        ],
        faults=[Fault(kind="kill", at=10.0, until=10.0, workers=["one"])],
        jobs=[],
        queues=[],
        last_fault_at=10.0,
        seen_at=50.0,
        limits=Limits(aftermath=4.0),
    )
    line = run_counts(history, check(history))
    assert (line.jobs, line.runs, line.kills, line.duplicates, line.violations) == (2, 4, 1, 1, 0)
    assert line.slowest_recovery == 4.5
    lines = table([line, line]).splitlines()
    assert lines[2].split() == ["7", "2", "4", "1", "1", "0", "0", "0", "0", "0", "0", "1", "4.5", "s", "0"]
    assert lines[-1].split() == [
        "all",
        "4",
        "8",
        "2",
        "2",
        "0",
        "0",
        "0",
        "0",
        "0",
        "0",
        "2",
        "4.5",
        "s",
        "0",
    ]
