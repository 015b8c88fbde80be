"""Guards that are removed on purpose, in the worker processes of a run; most are of held batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from chaos.plan import CUTS, Action
from graphile_worker.worker.fetch.plan import Watermarks
from graphile_worker.worker.held.ending import BatchEnds
from graphile_worker.worker.held.reconcile import BatchReconciler

CUT_BEFORE = tuple(Action(at=3.0 + 1.5 * n, kind="cut", how=CUTS[0], slot=n % 2) for n in range(6))
CUT_AFTER = tuple(Action(at=3.0 + 1.5 * n, kind="cut", how=CUTS[1], slot=n % 2) for n in range(4))
STOPS = tuple(Action(at=3.0 + n, kind="stop", slot=n % 2, lasts=0.3) for n in range(10))
"""Longer than `hold`: jobs that have not started by then are released."""


class BrokenHold(msgspec.Struct, frozen=True, kw_only=True):
    """A guard, how it is removed, and the rule that must find that."""

    name: str
    breaks: str
    remove: Callable[[], None]
    actions: tuple[Action, ...] = ()


def _forget_commits() -> None:
    add = BatchReconciler.add

    def broken(self: Any, finished: Any, running: Any, *, may_be_committed: bool, **more: Any) -> None:
        add(self, finished, running, may_be_committed=False, **more)

    BatchReconciler.add = broken  # type: ignore[method-assign]


def _forget_outcomes() -> None:
    add = BatchReconciler.add

    def broken(self: Any, finished: Any, *more: Any, **named: Any) -> None:
        add(self, (), *more, **named)

    BatchReconciler.add = broken  # type: ignore[method-assign]


def _delete_released() -> None:
    commit = BatchEnds._commit

    async def broken(self: Any, batch: Any, completed: Any, *more: Any) -> None:
        released = [job.id for job in batch.jobs if job.id not in batch.ids]
        delete = "delete from graphile_worker._private_jobs where id = any ($1)"
        await batch.connection.execute(delete, released)
        await commit(self, batch, completed, *more)

    BatchEnds._commit = broken  # type: ignore[method-assign, assignment]


def _keep_one() -> None:
    commit = BatchEnds._commit

    async def broken(self: Any, batch: Any, completed: Any, *more: Any) -> None:
        await commit(self, batch, completed[1:], *more)

    BatchEnds._commit = broken  # type: ignore[method-assign, assignment]


BROKEN_HOLDS = [
    BrokenHold(
        name="an unanswered commit counts as not made",
        breaks="nothing_is_discarded_in_vain",
        remove=_forget_commits,
        actions=CUT_AFTER,
    ),
    BrokenHold(
        name="outcomes of a lost batch are forgotten",
        breaks="every_end_is_settled",
        remove=_forget_outcomes,
        actions=CUT_BEFORE,
    ),
    BrokenHold(
        name="the end of a batch deletes released jobs",
        breaks="every_committed_job_ran_or_waits",
        remove=_delete_released,
        actions=STOPS,
    ),
    BrokenHold(
        name="the end of a batch does not delete a completed job",
        breaks="no_job_ran_twice",
        remove=_keep_one,
    ),
]


def _count_waits() -> None:
    """Take every fetch that was slow, for whatever reason, for one that reads past very many rows."""
    set_watermarks = Watermarks.set

    def broken(self: Any, *arguments: Any, **costs: Any) -> None:
        set_watermarks(self, *arguments, cost=10.0)
        self._wait = 500.0

    Watermarks.set = broken  # type: ignore[method-assign]


WAITS_COUNT = "a fetch that waited counts as slow"


def remove(name: str) -> None:
    """Remove the guard with this name from this process."""
    removals = {broken.name: broken.remove for broken in BROKEN_HOLDS} | {WAITS_COUNT: _count_waits}
    removals[name]()
