"""SourceContinuation: connects the sink with the source, for the next jobs of named queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import JobInterruptedError
from ..job import Job
from ..outcome import Finished, Interrupted
from ..queries.write_plan import Continuation
from .fetcher import Fetcher
from .source import JobSource


class SourceContinuation:
    """Implements the sink's `QueueContinuation` with the pool's source and fetcher."""

    def __init__(self, source: JobSource, fetcher: Fetcher, put: Callable[[Finished], None]) -> None:
        self._source = source
        self._fetcher = fetcher
        self._put = put

    def terms(self) -> Continuation | None:
        """What the next job of a queue must satisfy; None if other jobs may come first."""
        return self._fetcher.continuation() if self._source.may_go_on else None

    def adopt(self, jobs: Sequence[Job]) -> None:
        """Run these jobs next, or return them if the pool is stopping."""
        if not self._source.is_released:
            self._source.adopt(jobs)
            return
        for job in jobs:
            self._put(Finished(job, Interrupted(JobInterruptedError("")), "", 0.0))

    def queues_freed(self) -> None:
        """Fetch: the next job of a freed queue may be ready."""
        self._source.pulse()
