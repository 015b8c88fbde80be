"""Drain: runs everything that is ready, for `--once`."""

from __future__ import annotations

from collections.abc import Callable

from .lanes import AllSlots, AllSources
from .sink import Sink


async def drain(source: AllSources, slots: AllSlots, sink: Sink, is_stopping: Callable[[], bool]) -> None:
    """Fetch and run jobs, named queues to their end, until a fetch finds nothing; or until the pool stops."""
    while True:
        before = sink.accepted
        await source.fetch_once()
        await _until_settled(source, slots, sink, is_stopping)
        if sink.accepted == before or is_stopping():
            return


async def _until_settled(
    source: AllSources, slots: AllSlots, sink: Sink, is_stopping: Callable[[], bool]
) -> None:
    """Until nothing runs, nothing is prefetched and everything is written."""
    while True:
        await slots.idle()
        await source.quiet()
        await sink.flush()
        # The last write may have locked the next job of a queue, and that job may be running.
        if (source.is_quiet and slots.is_idle and sink.is_written) or is_stopping():
            return
