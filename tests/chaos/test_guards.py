"""The checker finds what is broken on purpose in real runs, and nothing where nothing is broken.

Two of them are always run, the others with CHAOS_GUARDS=1, as `make chaos` does.
"""

from __future__ import annotations

import os

import msgspec
import pytest

from chaos.adders import MANY_SHORT, Load
from chaos.broken_guards import GUARDS, USUAL, Guard, nothing
from chaos.broken_holds import BROKEN_HOLDS, BrokenHold
from chaos.checker import check
from chaos.history import Limits
from chaos.plan import Action
from chaos.run import Setup, run
from chaos.server import ChaosServer
from chaos.settings import DEFAULT, HELD_MODES, MODES

ALWAYS = 2
ALL = bool(os.environ.get("CHAOS_GUARDS"))
LIMITS = Limits(aftermath=4.0, write_within=2.0, dead_within=4.0, due_within=4.0, waits_within=4.0)
"""Shorter than usual, because a broken guard makes the run last until they are over."""
NOT_ALWAYS = pytest.mark.skipif(not ALL, reason="set CHAOS_GUARDS=1, or use make chaos")


def setup(guard: Guard | None, *, quiet_within: float) -> Setup:
    return Setup(
        seed=1,
        seconds=guard.seconds if guard is not None else 3.0,
        modes=[msgspec.structs.replace(mode, broken=guard.broken if guard else "") for mode in MODES[:3]],
        load=guard.load if guard is not None else USUAL,
        actions=guard.actions if guard is not None else (),
        options=guard.options if guard is not None else {},
        limits=LIMITS,
        quiet_within=quiet_within,
        call_within=0.0 if guard is not None else 60.0,
    )


@pytest.mark.parametrize(
    "guard",
    [*GUARDS[:ALWAYS], *(pytest.param(guard, marks=NOT_ALWAYS) for guard in GUARDS[ALWAYS:])],
    ids=lambda guard: guard.name,
)
async def test_a_broken_guard_is_found(guard: Guard, chaos: ChaosServer) -> None:
    history = await run(setup(guard, quiet_within=5.5), chaos, interfere=guard.interfere)
    assert guard.breaks in {violation.rule for violation in check(history)}


@NOT_ALWAYS
async def test_with_all_guards_in_place_nothing_is_found(chaos: ChaosServer) -> None:
    history = await run(setup(None, quiet_within=60.0), chaos, interfere=nothing)
    assert history.added
    assert check(history) == []


@NOT_ALWAYS
@pytest.mark.parametrize("broken", BROKEN_HOLDS, ids=lambda broken: broken.name)
async def test_a_guard_of_held_batches_that_is_removed_is_found(
    broken: BrokenHold, chaos: ChaosServer
) -> None:
    """With the default settings, as in `make chaos`."""
    modes = [msgspec.structs.replace(mode, broken=broken.name) for mode in HELD_MODES]
    history = await run(
        Setup(
            seed=1,
            seconds=12.0,
            timing=DEFAULT,
            modes=modes,
            load=MANY_SHORT,
            actions=broken.actions,
            is_held=True,
            quiet_within=20.0,
            call_within=0.0,
        ),
        chaos,
    )
    assert broken.breaks in {violation.rule for violation in check(history)}


@NOT_ALWAYS
async def test_a_worker_that_is_killed_while_the_server_still_believes_in_its_connection_is_recovered(
    chaos: ChaosServer,
) -> None:
    actions = (
        Action(at=1.0, kind="partition", how="half open", slot=0, lasts=3.0),
        Action(at=2.0, kind="kill", slot=0),
    )
    history = await run(
        Setup(
            seed=1,
            seconds=5.0,
            modes=MODES[:2],
            actions=actions,
            load=Load(failing=0.0, pause=0.02, longest=4.0),
        ),
        chaos,
    )
    assert [worker.ending for worker in history.workers].count("killed") == 1
    assert check(history) == []
