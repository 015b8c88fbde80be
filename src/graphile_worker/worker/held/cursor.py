"""IdCursor: jobs that were added together are fetched by id, each batch after the one before.

Such *tied* jobs have the same priority and run_at, so they may run in any order. In the index that a fetch
reads, the rows that other batches have locked come before those that are left. A fetch by id passes them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...database.connections.connection import Connection, Row
from ...database.statements.fetch import Ranges, ranges_up_to
from ...database.statements.held_batches import (
    ID,
    CursorPosition,
    get_held_jobs,
    get_tied_jobs,
    is_before,
    is_next,
    ties_of,
)
from ...values.schema_name import SchemaName

# What other workers have released, or what was passed, waits until then: any of these jobs may run first.
FROM_START_AFTER = 1.0  # seconds between two fetches from the start, ...
FROM_START_COSTS = 10  # ... or this many times as long as one takes, ...
FROM_START_WITHIN = 2.0  # ... and never more, because it may have waited for a lock, or for this process
MOST_IN_VAIN = 5  # fetches by id that find nothing although such jobs are there; other workers may have those
UNTIED = 20  # batches without a fetch by id after that
NONE_RELEASED = 1 << 63  # above all ids


class IdCursor:
    """Fetches the jobs of held batches, and knows where the next one goes on."""

    def __init__(self, schema: SchemaName) -> None:
        self._schema = schema
        self._ties: CursorPosition | None = None
        self._tasks: Mapping[int, str] = {}
        self._from_start_at = 0.0  # monotonic
        self._released = NONE_RELEASED
        self._among_others = False  # whether jobs with a key or of a named queue seem to wait too
        self._in_vain = 0  # fetches by id in a row that found nothing
        self._untied = 0  # batches for which nothing is continued by id

    def forget(self) -> None:
        """Let the next fetch read from the start."""
        self._from_start_at = 0.0

    def released(self, ids: Iterable[int]) -> None:
        """This pool has released these jobs: the next fetch by id goes back to them."""
        self._released = min(self._released, *ids)

    async def fetch(
        self,
        connection: Connection,
        ranges: Ranges | None,
        *,
        tasks: Mapping[int, str],
        limit: int,
        **terms: Any,
    ) -> tuple[Sequence[Row], bool]:
        """The next rows, and whether there may be more."""
        ties, self._ties = self._ties if tasks is self._tasks else None, None
        if ties is not None:
            ties = ties.back_to(self._released)
        self._released = NONE_RELEASED
        kept = None
        if ties is not None and time.monotonic() < self._from_start_at:
            before = ranges_up_to(ties.priority, ranges)
            rows = await get_tied_jobs(
                connection,
                self._schema,
                ties=ties,
                ranges=before,
                tasks=tasks,
                limit=limit,
                among_others=self._among_others,
                **terms,
            )
            if rows:
                self._in_vain = 0
                if len(rows) > limit // 2:  # fewer are not worth a transaction
                    self._ties, self._tasks = CursorPosition(ties.priority, ties.run_at, rows[-1][ID]), tasks
                return rows, True
            self._among_others = True
        else:
            kept, ties, self._among_others = ties, None, False
        began = time.monotonic()
        rows = await get_held_jobs(connection, self._schema, tasks=tasks, limit=limit, ranges=ranges, **terms)
        if ties is not None and rows and is_next(ties, rows[0]):
            self._in_vain += 1
            if self._in_vain >= MOST_IN_VAIN:  # it could have gone on, but a job that cannot run comes first
                self._untied = UNTIED
        self._untied -= self._untied > 0
        if not self._untied and len(rows) == limit:
            ended = time.monotonic()
            cost = min(FROM_START_COSTS * (ended - began), FROM_START_WITHIN)
            self._from_start_at = ended + max(FROM_START_AFTER, cost)
            self._tasks = tasks
            self._ties = kept if kept is not None and is_before(rows, kept) else ties_of(rows)
        return rows, len(rows) == limit
