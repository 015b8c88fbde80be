"""SchemaWatch: what it makes of announced and real changes of the schema, without a server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from graphile_worker.database.migrations.state import SchemaState
from graphile_worker.testing.fake_clock import FakeClock
from graphile_worker.worker.context import BackgroundTasks
from graphile_worker.worker.control.watch import MIN_INTERVAL, SchemaWatch
from support.pool_parts import RecordingOwner, pool_context


def state(*, jobs_table: int = 1, revision: int = 20, breaking: int | None = 16) -> SchemaState:
    return SchemaState(
        server_version=180000,
        schema_exists=True,
        objects=(),
        has_own_ledger=True,
        jobs_table=jobs_table,
        revision=revision,
        breaking_revision=breaking,
    )


class Watched:
    """A schema that the test changes, and what the watch reports about it."""

    def __init__(self) -> None:
        self.clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.owner = RecordingOwner()
        self.state: SchemaState | Exception = state()
        self.reads = 0
        sessions: Any = self
        self.watch = SchemaWatch(
            pool_context(owner=self.owner, clock=self.clock), sessions, BackgroundTasks(self.owner)
        )

    async def run(self, statement: object) -> SchemaState:
        """As `Sessions.run`, with the state that the test has set."""
        self.reads += 1
        if isinstance(self.state, Exception):
            raise self.state
        return self.state

    @property
    def changes(self) -> int:
        return self.owner.schema_changes

    @property
    def errors(self) -> list[BaseException]:
        return self.owner.deaths

    async def check(self) -> None:
        """Check, and let the time pass that lies between two checks."""
        self.watch.check()
        await self.settle()

    async def settle(self) -> None:
        await asyncio.sleep(0)
        await self.clock.advance(MIN_INTERVAL)


@pytest.fixture
async def watched() -> Watched:
    return Watched()


async def test_the_first_check_only_remembers(watched: Watched) -> None:
    await watched.check()
    await watched.check()
    assert (watched.reads, watched.changes, watched.errors) == (2, 0, [])


@pytest.mark.parametrize("after", [state(revision=21), state(jobs_table=2)], ids=["migrated", "reinstalled"])
async def test_a_change_is_reported_once(watched: Watched, after: SchemaState) -> None:
    await watched.check()
    watched.state = after
    await watched.check()
    await watched.check()
    assert (watched.changes, watched.errors) == (1, [])


async def test_a_breaking_migration_is_an_error(watched: Watched) -> None:
    watched.state = state(revision=99, breaking=99)
    await watched.check()
    assert len(watched.errors) == 1


async def test_a_flood_of_announcements_leads_to_one_check_per_interval(watched: Watched) -> None:
    for _ in range(50):
        watched.watch.change_announced()
    await asyncio.sleep(0)
    for _ in range(50):
        watched.watch.change_announced()
    assert (watched.reads, watched.changes) == (1, 1)
    await watched.settle()
    assert (watched.reads, watched.changes) == (2, 1)


async def test_a_check_is_retried_while_the_database_is_unavailable(watched: Watched) -> None:
    watched.state = ConnectionRefusedError()
    await watched.check()
    await watched.clock.advance(300)
    failures = watched.reads
    assert failures > 1
    watched.state = state(revision=99, breaking=99)
    await watched.clock.advance(300)
    assert (watched.reads, len(watched.errors)) == (failures + 1, 1)


async def test_any_other_error_ends_the_check(watched: Watched) -> None:
    watched.state = ValueError("unreadable")
    await watched.check()
    await watched.clock.advance(300)
    assert watched.reads == 1
    watched.state = state()
    await watched.check()
    assert watched.reads == 2
