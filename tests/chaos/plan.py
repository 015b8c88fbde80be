"""The plan of the nemesis: what it does to whom and when. It follows from the seed alone."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from chaos.history import FaultKind

RESTARTS = ("fast", "immediate")
PARTITIONS = ("delayed", "noticed", "half open", "torn")
"""Delayed: what was sent arrives when it is over. Noticed: the server closes the connections in between.
Half open: it does not, and believes in them even afterwards. Torn: some are delayed, some are noticed."""

CUTS = ("before the commit", "after the commit")
"""Of a held batch, in place of the answer to its delete or to its commit."""
KILLS = ("in hold", "after hold")
"""While a worker holds a batch, or while it runs a job that has outlasted its batch."""
AGAIN = 5  # every fifth seed waits until batches are held again, and kills again

ANYONE: tuple[FaultKind, ...] = ("stop", "leave", "lock", "unlock")
"""What need not strike a worker that holds batches."""

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
    within: float = 10.0
    """Seconds to wait for the moment that is meant."""

    def __str__(self) -> str:
        words = [self.kind, self.how, f"for {self.lasts:.1f} s" if self.lasts else ""]
        return " ".join(filter(None, words))


def plan(seed: int, *, seconds: float, slots: int, pause: float, until_taken: float) -> list[Action]:
    """Every kind at least once if the time allows, in an order and at times that the seed decides.

    `pause` is the mean time between two deeds; a process is stopped for longer than `until_taken`, the time
    after which a dead one would have lost its jobs.
    """
    dice = random.Random(f"{seed}/nemesis")
    kinds: list[tuple[FaultKind, str]] = [
        ("kill", ""),
        ("stop", ""),
        ("terminate", ""),
        ("restart", dice.choice(RESTARTS)),
        ("partition", dice.choice(PARTITIONS)),
        ("lock", ""),
        ("unlock", ""),
    ]
    room = max(0.0, seconds - LEAD_IN - LEAD_OUT)
    count = max(len(kinds), round(room / pause))
    while len(kinds) < count:
        kinds.append(_any_kind(dice))
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


def held_plan(seed: int, *, slots: int, holding: Sequence[int], is_short: bool = False) -> list[list[Action]]:
    """First what is no death, then deaths: while one is fresh, nothing is held.

    The deeds follow each other; `at` says when each would begin if the ones before took no time. Some seeds
    have a second turn, for the time when jobs are held again. `holding`: the slots whose workers hold jobs.
    """
    dice = random.Random(f"{seed}/held")
    deeds: list[tuple[FaultKind, str, float]] = [
        *((("cut", how, 0.0)) for how in CUTS * (1 if is_short else 2)),
        ("stop", "", dice.uniform(0.2, 1.0 if is_short else 3.0)),
        ("terminate", dice.choice(("one", "all")), 0.0),
        ("restart", RESTARTS[seed % 2], dice.choice((0.0, dice.uniform(0.2, 1.5)))),
        ("lock", "", dice.uniform(0.5, 1.0 if is_short else 4.0)),
        ("unlock", "", dice.uniform(0.2, 1.0)),
    ]
    if not is_short:
        deeds.append(("partition", PARTITIONS[seed // 2 % len(PARTITIONS)], dice.uniform(0.5, 5.0)))
        deeds.append(("leave", "", 0.0))
    dice.shuffle(deeds)
    within = 2.0 if is_short else 10.0
    first: list[Action] = []
    at = LEAD_IN if is_short else 2 * LEAD_IN
    for number, (kind, how, lasts) in enumerate(deeds):
        slot = dice.randrange(slots) if kind in ANYONE else holding[number % len(holding)]
        first.append(Action(at=at, kind=kind, how=how, slot=slot, lasts=lasts, within=within))
        at += dice.uniform(0.2, 0.5) if is_short else dice.uniform(0.8, 3.0)
    first += _kills(dice, at, holding, within if is_short else 2 * within)
    if is_short or seed % AGAIN:
        return [first]
    cut = Action(at=0.0, kind="cut", how=dice.choice(CUTS), slot=dice.choice(holding), within=60.0)
    return [first, [cut, *_kills(dice, 2.0, holding, 2 * within)]]


def _kills(dice: random.Random, at: float, slots: Sequence[int], within: float) -> list[Action]:
    """One of each kind, soon after each other: the second worker has not noticed and still holds batches."""
    victims, hows = dice.sample(slots, len(KILLS)), dice.sample(KILLS, len(KILLS))
    return [
        Action(at=at, kind="kill", how=hows[0], slot=victims[0], within=within),
        Action(at=at + dice.uniform(0.0, 0.5), kind="kill", how=hows[1], slot=victims[1], within=within / 4),
    ]


def _any_kind(dice: random.Random) -> tuple[FaultKind, str]:
    kind: FaultKind = dice.choices(
        ("kill", "stop", "terminate", "restart", "partition", "lock", "unlock"), weights=(4, 2, 4, 1, 3, 1, 2)
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
    if kind == "lock":
        return dice.uniform(0.3, 1.2)  # less than the shortest grace
    if kind == "unlock":
        return dice.uniform(0.2, 1.0)
    return 0.0
