"""The short form of the chaos suite: one seed, every kind of fault, and nothing may be lost."""

from __future__ import annotations

import msgspec

from chaos.adders import CONTROL, MANY_KEPT, MANY_SHORT, load_of
from chaos.checker import check
from chaos.plan import CUTS
from chaos.report import run_counts
from chaos.run import Setup, run
from chaos.server import ChaosServer
from chaos.settings import HELD_MODES

SEED = 7  # with wide queues and pauses
SECONDS = 18.0


async def test_nothing_is_lost_when_workers_and_the_server_fail_at_random(chaos: ChaosServer) -> None:
    said: list[str] = []
    load = load_of(SEED)
    assert load is CONTROL
    history = await run(Setup(seed=SEED, seconds=SECONDS, load=load), chaos, say=said.append)
    violations = check(history)
    found = run_counts(history, violations)
    assert not violations, "\n".join(
        [
            f"repeat it: make chaos CHAOS_ARGS='--seed {SEED} --seconds {SECONDS:g}'",
            *said,
            *map(str, violations),
        ]
    )
    assert found.jobs > 100
    assert min(found.kills, found.stops, found.terminations, found.restarts, found.partitions) >= 1
    assert found.pauses >= 1


async def test_what_is_kept_matches_the_jobs_that_ended(chaos: ChaosServer) -> None:
    """Thousands of short jobs: kills, cut connections and restarts fall into writes of the history."""
    wanted = 1_500
    load = msgspec.structs.replace(MANY_KEPT, jobs=wanted)
    history = await run(Setup(seed=SEED, seconds=8.0, load=load), chaos)
    violations = check(history)
    assert not violations, "\n".join(map(str, violations))
    assert len(history.added) >= wanted
    assert len(history.ends or ()) > wanted / 2


async def test_nothing_is_lost_when_jobs_are_held(chaos: ChaosServer) -> None:
    """Recovery is shorter than usual. Whether much is held depends on the machine; `make chaos` insists."""
    setup = Setup(seed=SEED, seconds=5.0, load=MANY_SHORT, modes=HELD_MODES, is_held=True, least_held=0)
    history = await run(setup, chaos)
    violations = check(history)
    assert not violations, "\n".join(map(str, violations[:20]))
    assert len(history.added) > 1_000
    assert {fault.detail for fault in history.faults if fault.kind == "cut"} >= {f"cut {how}" for how in CUTS}
