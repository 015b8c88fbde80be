"""What the tests of faults share: a task that keeps count, the log, servers that come and go."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from graphile_worker import JobHelpers
from graphile_worker.database.embedded import EmbeddedPostgres
from graphile_worker.database.migrations import migrate
from graphile_worker.values.schema_name import SchemaName
from support.scratch import scratch_folder
from support.working import PATIENCE as PATIENCE
from support.working import until

SETTINGS = {"fsync": "off", "shared_buffers": "16MB", "max_connections": "40", "autovacuum": "off"}
BRIEF = {"heartbeat_interval": 0.5, "recovery_grace": 3.0, "sweep_interval": 0.5}
"""Seconds of what takes half a minute by default, with room for a machine that is busy."""


class Ran:
    """Which jobs ran, by the number in their payload, and at which attempt."""

    def __init__(self) -> None:
        self.times: Counter[int] = Counter()
        self.attempts: set[int] = set()

    async def __call__(self, payload: Any, helpers: JobHelpers) -> None:
        self.times[payload["n"]] += 1
        self.attempts.add(helpers.job.attempts)

    async def until(self, *numbers: int) -> None:
        """Wait until these have run."""
        await until(lambda: all(self.times[number] for number in numbers), timeout=PATIENCE)

    def assert_each_once(self, count: int) -> None:
        assert self.times == Counter(dict.fromkeys(range(count), 1))
        assert self.attempts == {1}


class Log:
    """The lines of the worker, but for those about single jobs."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    @property
    def lines(self) -> list[str]:
        messages = [
            record.getMessage()
            for record in self._caplog.records
            if record.name.startswith("graphile_worker") and "embedded" not in record.name
        ]
        return [message for message in messages if ") completed in " not in message]

    def clear(self) -> None:
        self._caplog.clear()

    async def says(self, *texts: str) -> None:
        """Wait until there is a line with each of these."""

        def missing() -> list[str]:
            return [text for text in texts if not any(text in line for line in self.lines)]

        try:
            await until(lambda: not missing(), timeout=PATIENCE)
        except TimeoutError:
            raise AssertionError(f"{missing()} not in the log:\n" + "\n".join(self.lines)) from None

    def count(self, text: str) -> int:
        return sum(text in line for line in self.lines)


async def rate(count: Callable[[], int], *, over: float = 2.0) -> float:
    """How often something happens per second, in these seconds or as many as a busy machine makes of them."""
    began, before = time.monotonic(), count()
    await asyncio.sleep(over)
    return (count() - before) / (time.monotonic() - began)


class FastClock:
    """Lets minutes pass in seconds for everything that waits on the worker's clock."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._start, self._wall = self.monotonic(), datetime.now(UTC)

    def now(self) -> datetime:
        return self._wall + timedelta(seconds=self.monotonic() - self._start)

    def monotonic(self) -> float:
        return time.monotonic() * self._speed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._speed)


@contextmanager
def own_server(*, port: int | None = None) -> Iterator[EmbeddedPostgres]:
    """A server that a test may stop and break."""
    options: dict[str, Any] = {
        "version": os.environ.get("TEST_POSTGRES_VERSION") or None,
        "bin_dir": os.environ.get("TEST_POSTGRES_BIN") or None,
    }
    with (
        scratch_folder() as folder,
        EmbeddedPostgres(folder, port=port, settings=SETTINGS, **options) as server,
    ):
        yield server


async def fresh_database(server: EmbeddedPostgres, name: str) -> str:
    """A database with the schema; its URL."""
    admin = await asyncpg.connect(server.url())
    await admin.execute(f'drop database if exists "{name}" with (force)')
    await admin.execute(f'create database "{name}"')
    await admin.close()
    connection = await asyncpg.connect(server.url(name))
    await migrate(connection, SchemaName())
    await connection.close()
    return server.url(name)


async def set_system(server: EmbeddedPostgres, setting: str, value: str | None) -> None:
    """Change a setting of the server, or take the change back."""
    admin = await asyncpg.connect(server.url())
    await admin.execute("set default_transaction_read_only = off")
    command = f"set {setting} = {value}" if value is not None else f"reset {setting}"
    await admin.execute(f"alter system {command}")
    await admin.execute("select pg_reload_conf()")
    await admin.close()


async def stop_server(server: EmbeddedPostgres, how: signal.Signals = signal.SIGINT) -> None:
    """As `pg_ctl stop` does it: SIGINT is its mode fast, SIGQUIT its mode immediate."""
    (pid_file,) = server.data_dir.glob("*/postmaster.pid")
    os.kill(int(pid_file.read_text().split()[0]), how)
    await until(lambda: not server.is_running, timeout=PATIENCE)
