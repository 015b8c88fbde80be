"""Arbitrary notifications on the channels that a worker hears: it lives on, and the next job runs at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from fuzz.cases import fuzzed, tried
from fuzz.desk import Desk
from fuzz.values import JSON_VALUES, PG_TEXT
from graphile_worker import Runner, run
from graphile_worker.worker.control.listener import announced_jobs, announced_migration
from support.working import SCHEMA

MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "local queue": {
        "local_queue": {
            "size": 3,
            "refetch_delay": {"duration": 0.01, "threshold": 2, "max_abort_threshold": 5},
        }
    },
}
NUMBERS = (
    st.integers() | st.floats(allow_nan=False) | st.sampled_from([0, -1, 1, 2**63, 10**400, True, None, "1"])
)
PAYLOADS = st.one_of(
    PG_TEXT,
    JSON_VALUES.map(json.dumps),
    st.fixed_dictionaries({}, optional={"count": NUMBERS | JSON_VALUES, "r": NUMBERS}).map(json.dumps),
    st.fixed_dictionaries(
        {}, optional={"migrationNumber": NUMBERS | JSON_VALUES, "breaking": NUMBERS | JSON_VALUES}
    ).map(json.dumps),
    st.sampled_from(
        ["[" * 3000, '{"a":' * 1500, '{"count":1', "x" * 7999, '{"count":1e999}', '{"count":01}']
    ),
)


class Listening:
    """A worker that runs as long as the module's tests, and what its only task was called with."""

    def __init__(self, desk: Desk, options: dict[str, Any]) -> None:
        self.desk = desk
        self.done: asyncio.Queue[int] = asyncio.Queue()
        self.runner: Runner = desk.run(self._started(options))

    async def _started(self, options: dict[str, Any]) -> Runner:
        async def note(payload: int) -> None:
            self.done.put_nowait(payload)

        # Nothing is found by polling, so a job that runs at once was heard of.
        return await run(
            connection_string=self.desk.url,
            task_list={"note": note},
            handle_signals=False,
            poll_interval=3600,
            **options,
        )

    @property
    def channels(self) -> list[str]:
        return ["jobs:insert", "worker:migrate", "worker:ping"]


@pytest.fixture(scope="module", params=MODES.values(), ids=list(MODES))
def listening(desk: Desk, request: pytest.FixtureRequest) -> Iterator[Listening]:
    listening = Listening(desk, request.param)
    try:
        yield listening
    finally:
        desk.run(listening.runner.stop())


def is_farewell(channel: str, payload: str) -> bool:
    """Whether it says that the schema has changed beyond this worker, which then has to stop."""
    migration = announced_migration(payload) if channel == "worker:migrate" else None
    return migration is not None and migration[1]


@fuzzed(0.5)
@example(0, ['{"count": 1000000000000000000000000000000000}'], 1)
@example(1, ['{"migrationNumber": 1, "breaking": 1}', '{"migrationNumber": "x", "breaking": true}'], 2)
@given(st.integers(0, 2), st.lists(PAYLOADS, min_size=1, max_size=3), st.integers())
def test_a_worker_hears_anything_and_goes_on_working(
    listening: Listening, channel: int, payloads: list[str], number: int
) -> None:
    name = listening.channels[channel]
    payloads = [text for text in payloads if len(text.encode()) < 8000]
    assume(not any(is_farewell(name, text) for text in payloads))
    tried["notifications"] += 1

    async def case() -> None:
        connection = listening.desk.connection
        for payload in payloads:
            await connection.execute("select pg_notify($1, $2)", name, payload)
        await connection.execute(
            f"select {SCHEMA}.add_job('note', $1::text::json, max_attempts => 1)", json.dumps(number)
        )
        assert await listening.done.get() == number

    listening.desk.run(case())
    assert listening.done.empty()


@fuzzed(0.5)
@given(PAYLOADS | st.text())
def test_every_payload_can_be_read(payload: str) -> None:
    tried["notifications"] += 1
    assert isinstance(announced_jobs(payload), int)
    migration = announced_migration(payload)
    assert migration is None or (isinstance(migration[0], int) and isinstance(migration[1], bool))
