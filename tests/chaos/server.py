"""The server under test: of the suite's own, because it is stopped and started."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg

from chaos.adders import TABLE
from graphile_worker.database.connections.open import connect
from graphile_worker.database.embedded import EmbeddedPostgres
from graphile_worker.database.migrations import migrate
from graphile_worker.testing.scratch import SETTINGS
from graphile_worker.values.schema_name import SchemaName
from support.scratch import scratch_folder
from support.working import until

STOP_SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
PATIENCE = 60.0


class ChaosServer:
    """A server that can be restarted; each run has a fresh database there."""

    def __init__(self, embedded: EmbeddedPostgres) -> None:
        self._embedded = embedded
        self._restarting = asyncio.Lock()

    @property
    def version(self) -> str:
        return self._embedded.version

    async def fresh_database(self) -> str:
        """The URL of a database with the schema and the table of the adders."""
        admin = await asyncpg.connect(self._embedded.url())
        await admin.execute("drop database if exists chaos with (force)")
        await admin.execute("create database chaos")
        await admin.close()
        connection = await connect(self._embedded.url("chaos"))
        await migrate(connection, SchemaName())
        await connection.execute(TABLE)
        await connection.close()
        return self._embedded.url("chaos")

    async def restart(self, how: str, away_for: float) -> None:
        """As `pg_ctl` does it; two restarts at the same time become two in a row."""
        async with self._restarting:
            (pid_file,) = self._embedded.data_dir.glob("*/postmaster.pid")
            os.kill(int(pid_file.read_text().split()[0]), STOP_SIGNALS[how])
            await until(lambda: not self._embedded.is_running, timeout=PATIENCE, every=0.02)
            await asyncio.sleep(away_for)
            await asyncio.to_thread(self._embedded.start)


@contextmanager
def chaos_server() -> Iterator[ChaosServer]:
    """A running one; the versions are chosen as for the other tests."""
    options: dict[str, Any] = {
        "version": os.environ.get("TEST_POSTGRES_VERSION") or None,
        "bin_dir": os.environ.get("TEST_POSTGRES_BIN") or None,
    }
    with scratch_folder() as folder, EmbeddedPostgres(folder, settings=SETTINGS, **options) as embedded:
        yield ChaosServer(embedded)
