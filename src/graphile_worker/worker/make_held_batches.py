"""Makes what runs the held batches of a pool, where they are possible and of use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..clock import Clock
from ..job import Job
from ..options import WorkerOptions
from .fetch.fetcher import FlagSource
from .held.batches import HeldBatches
from .held.reconcile import BatchReconciler
from .held.sessions import SpareConnections
from .lane_plan import LanePlan
from .session.session import Session, Sessions
from .write.sink import Sink


def can_hold(options: WorkerOptions, lanes: Sequence[LanePlan], forbidden_flags: FlagSource) -> bool:
    """Whether a worker with these options and lanes ever holds batches."""
    return (
        options.hold > 0
        and options.prefetch > 0
        and options.prepared_statements
        and options.local_queue is None
        and not callable(forbidden_flags)  # may change with each job
        and any(lane.may_hold for lane in lanes)
    )


def make_held_batches(
    options: WorkerOptions,
    lanes: Sequence[LanePlan],
    forbidden_flags: FlagSource,
    spare: SpareConnections | None,
    sessions: Sessions,
    fetch_session: Session,
    sink: Sink,
    clock: Clock,
    *,
    pool_id: str,
    on_taken: Callable[[list[Job]], None],
    on_error: Callable[[BaseException], None],
) -> HeldBatches | None:
    """None where nothing can be held, or it would be of no use: see docs/design/0030-held-batches.md.

    `on_taken`: called with jobs that run here and that other workers have taken, because the transaction that
    held them was lost.
    """
    if spare is None or not can_hold(options, lanes, forbidden_flags):
        return None
    schema = options.schema_name
    now = clock.now if options.use_local_time else lambda: None
    lost = BatchReconciler(
        fetch_session,  # not while a fetch is in flight that may have locked the same jobs
        schema,
        clock,
        pool_id=pool_id,
        put=sink.accept,
        on_committed=sink.completed_held,
        on_discarded=sink.discarded_held,
        on_taken=on_taken,
        on_error=on_error,
        now=now,
    )
    return HeldBatches(
        sessions,
        spare,
        schema,
        pool_id=pool_id,
        seconds=options.hold,
        lost=lost,
        on_completed=sink.completed_held,
        on_error=on_error,
        now=now,
    )
