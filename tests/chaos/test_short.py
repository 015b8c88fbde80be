"""The short form of the chaos suite: one seed, every kind of fault, and nothing may be lost."""

from __future__ import annotations

from chaos.checker import check
from chaos.report import figures
from chaos.run import Setup, run
from chaos.server import ChaosServer

SEED = 7
SECONDS = 18.0


async def test_nothing_is_lost_when_workers_and_the_server_fail_at_random(chaos: ChaosServer) -> None:
    said: list[str] = []
    history = await run(Setup(seed=SEED, seconds=SECONDS), chaos, say=said.append)
    violations = check(history)
    found = figures(history, violations)
    assert not violations, "\n".join(
        [
            f"repeat it: make chaos CHAOS_ARGS='--seed {SEED} --seconds {SECONDS:g}'",
            *said,
            *map(str, violations),
        ]
    )
    assert found.jobs > 100
    assert min(found.kills, found.stops, found.terminations, found.restarts, found.partitions) >= 1
