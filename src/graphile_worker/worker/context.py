"""PoolContext: what every part of a pool knows of it. Owner: what the parts report to the pool itself."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

import msgspec

from ..clock import Clock
from ..hooks import Events
from ..job import Job
from ..options import WorkerOptions
from ..schema_name import SchemaName


class Owner(Protocol):
    """The pool, as its parts see it: they report what concerns more than themselves."""

    @property
    def is_stopping(self) -> bool:
        """Whether it is shutting down or has ended."""
        ...

    @property
    def sees_cancelled_jobs(self) -> bool:
        """Whether it can read which jobs operators have cancelled."""
        ...

    @property
    def is_listening(self) -> bool:
        """Whether notifications arrive."""
        ...

    def begin_shutdown(self, message: str) -> None:
        """Shut down gracefully."""
        ...

    def die(self, error: BaseException, action: str) -> None:
        """Shut down with this error: it cannot go on."""
        ...

    def fetch_failed(self, error: BaseException) -> None:
        """A fetch has failed and is tried again."""
        ...

    def write_failed(self, error: BaseException) -> None:
        """A write has failed; its outcomes are kept and written again."""
        ...

    def jobs_taken(self, jobs: list[Job]) -> None:
        """Other workers have taken these jobs, which run here."""
        ...

    def schema_changed(self) -> None:
        """What was read from the schema may be stale: task ids, and that locked jobs exist."""
        ...


class PoolContext(msgspec.Struct, frozen=True, kw_only=True):
    """What every part of one pool is given."""

    pool_id: str
    options: WorkerOptions
    events: Events
    clock: Clock
    owner: Owner

    @property
    def schema(self) -> SchemaName:
        return self.options.schema_name

    def now(self) -> datetime | None:
        """The time for statements: the worker's own, or None for the server's."""
        return self.clock.now() if self.options.use_local_time else None
