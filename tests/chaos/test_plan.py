"""The plan follows from the seed, and the table from the histories."""

from __future__ import annotations

import pytest

from chaos.checker import check
from chaos.history import Added, Fault, History, Limits, Run, Worker
from chaos.plan import Action, plan
from chaos.report import figures, table

KINDS = {"kill", "stop", "terminate", "restart", "partition"}


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


def test_a_run_is_told_in_figures() -> None:
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
    line = figures(history, check(history))
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
