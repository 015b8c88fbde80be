"""The plan of the nemesis: what it does to whom and when. It follows from the seed alone."""

from __future__ import annotations

import random

import msgspec

from chaos.history import FaultKind

RESTARTS = ("fast", "immediate")
PARTITIONS = ("delayed", "noticed", "half open", "torn")
"""Delayed: what was sent arrives when it is over. Noticed: the server closes the connections in between.
Half open: it does not, and believes in them even afterwards. Torn: some are delayed, some are noticed."""

CUTS = ("before the commit", "after the commit")
"""Of a held batch, in place of the answer to its delete or to its commit."""

LEAD_IN = 1.0  # seconds in which the load begins undisturbed
LEAD_OUT = 0.5


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One deed."""

    at: float
    """Seconds after the load began."""
    kind: FaultKind
    slot: int
    """Which worker; a restart of the server is for all."""
    lasts: float = 0.0
    how: str = ""

    def __str__(self) -> str:
        words = [self.kind, self.how, f"for {self.lasts:.1f} s" if self.lasts else ""]
        return " ".join(filter(None, words))


def plan(
    seed: int, *, seconds: float, slots: int, pause: float, until_taken: float, is_held: bool = False
) -> list[Action]:
    """Every kind at least once if the time allows, in an order and at times that the seed decides.

    `pause` is the mean time between two deeds; a process is stopped for longer than `until_taken`, the time
    after which a dead one would have lost its jobs. `is_held`: connections of held batches are cut too.
    """
    dice = random.Random(f"{seed}/nemesis")
    kinds: list[tuple[FaultKind, str]] = [
        ("kill", ""),
        ("stop", ""),
        ("terminate", ""),
        ("restart", dice.choice(RESTARTS)),
        ("partition", dice.choice(PARTITIONS)),
    ]
    if is_held:
        kinds += [("cut", how) for how in CUTS]
    room = max(0.0, seconds - LEAD_IN - LEAD_OUT)
    count = max(len(kinds), round(room / pause))
    while len(kinds) < count:
        kinds.append(("cut", dice.choice(CUTS)) if is_held and dice.random() < 0.7 else _any_kind(dice))
    dice.shuffle(kinds)
    actions = []
    for number, (kind, how) in enumerate(kinds):
        at = LEAD_IN + room * (number + dice.random()) / len(kinds)
        actions.append(
            Action(
                at=at,
                kind=kind,
                how=how if kind != "terminate" else dice.choice(("one", "all")),
                slot=dice.randrange(slots),
                lasts=_duration(kind, dice, until_taken),
            )
        )
    return actions


def _any_kind(dice: random.Random) -> tuple[FaultKind, str]:
    kind: FaultKind = dice.choices(
        ("kill", "stop", "terminate", "restart", "partition"), weights=(4, 2, 4, 1, 3)
    )[0]
    if kind == "restart":
        return kind, dice.choice(RESTARTS)
    if kind == "partition":
        return kind, dice.choice(PARTITIONS)
    return kind, ""


def _duration(kind: FaultKind, dice: random.Random, until_taken: float) -> float:
    if kind == "stop":
        return until_taken + dice.uniform(0.3, 1.5)
    if kind == "partition":
        return dice.uniform(0.2, 1.5) * until_taken
    if kind == "restart":
        return dice.choice((0.0, dice.uniform(0.2, 1.5)))
    return 0.0
