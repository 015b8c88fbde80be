"""Chooses how a lane fetches: its fetcher and its source."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from ..clock import Clock
from ..hooks import Events
from ..lane import FAIR
from ..options import WorkerOptions
from .adaptive_source import AdaptiveSource
from .fetcher import Fetcher
from .lane_plan import LanePlan
from .local_queue import LocalQueue
from .source import JobSource

logger = logging.getLogger("graphile_worker.worker")


def choose_fetcher(plan: LanePlan) -> Callable[..., Fetcher]:
    """What locks the jobs of a lane: a class, or a call that makes one."""
    if plan.limits:
        from .limited_fetcher import LimitedFetcher

        return partial(LimitedFetcher, limits=plan.limits)
    if plan.order == FAIR:
        from .fair_fetcher import FairFetcher

        return FairFetcher
    return Fetcher


def choose_source(
    options: WorkerOptions,
    plan: LanePlan,
    fetcher: Fetcher,
    events: Events,
    clock: Clock,
    *,
    on_error: Callable[[BaseException], None],
    frees_queues: Callable[[], bool],
) -> JobSource:
    """Node's local queue for the main lane if the options ask for it, else the adaptive source.

    Forbidden flags must be read at every fetch, so they bypass the local queue, as in Node.
    """
    local_queue = options.local_queue
    if local_queue is not None and plan.is_main and not fetcher.has_flags:
        if local_queue.size < plan.concurrency:
            logger.warning(
                "local_queue.size is %d, less than concurrency, %d: some slots will often have no job",
                local_queue.size,
                plan.concurrency,
            )
        return LocalQueue(fetcher, events, clock, local_queue, on_error=on_error)
    return AdaptiveSource(
        fetcher,
        events,
        clock,
        concurrency=plan.concurrency,
        prefetch=0.0 if local_queue is not None else options.prefetch,
        on_error=on_error,
        frees_queues=frees_queues,
    )
