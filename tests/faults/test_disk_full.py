"""The server's disk is full: a small file system of its own, filled and freed again."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from faults.scene import BRIEF, PATIENCE, SETTINGS, Log, fresh_database, rate
from graphile_worker.database.embedded import EmbeddedPostgres
from graphile_worker.errors.text import MAX_MESSAGE
from graphile_worker.hooks.events import JobErrored, WorkerGetJobError
from graphile_worker.testing.results import EventRecorder
from support.programs import needed
from support.working import Gate, Jobs, until, workers_of

MEGABYTES = 120


@pytest.fixture(scope="module")
def small_disk() -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    folder = Path(tempfile.mkdtemp(prefix="gw-disk-"))
    mounted = subprocess.run(
        [needed("mount"), "-t", "tmpfs", "-o", f"size={MEGABYTES}m,mode=711", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        folder.rmdir()
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()


def fill(folder: Path) -> Path:
    """Take all that is left."""
    path = folder / "filling"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    return path


async def test_a_worker_keeps_outcomes_until_there_is_room_again(
    small_disk: Path, recorder: EventRecorder, log: Log
) -> None:
    settings = SETTINGS | {"max_wal_size": "32MB", "min_wal_size": "32MB", "wal_level": "minimal"}
    settings |= {"max_wal_senders": "0"}
    with EmbeddedPostgres(small_disk / "data", settings=settings) as server:
        url = await fresh_database(server, "full")
        connection = await asyncpg.connect(url)
        jobs, gate = Jobs(connection), Gate()

        async def fail(payload: Any) -> None:
            await gate(payload)
            raise RuntimeError(os.urandom(50_000).hex())  # cannot be compressed: it needs pages of its own

        for number in range(20):
            await jobs.add("fail", {"n": number})
        async for workers in workers_of(url):
            await workers.start(
                {"fail": fail}, concurrency=20, events=recorder.events, poll_interval=0.2, **BRIEF
            )
            await gate.until_inside(20, timeout=PATIENCE)
            filling = fill(small_disk)
            try:
                with pytest.raises(asyncpg.DiskFullError):
                    await jobs.add("never", {"much": os.urandom(500_000).hex()})
                while gate.inside:
                    gate.open()
                await log.says("outcomes could not be written and are kept: ", "No space left on device")
                assert await rate(lambda: recorder.count(WorkerGetJobError)) <= 10
                assert recorder.count(JobErrored) < 20
                assert len(log.lines) <= 20, log.lines
            finally:
                filling.unlink()
            if not server.is_running:  # not even the log of changes could be written
                await asyncio.to_thread(server.start)
            await log.says("outcomes are written again")
            await until(lambda: recorder.count(JobErrored) == 20, timeout=PATIENCE)
            rows = await connection.fetch(
                "select attempts, locked_by, length(last_error) as length from graphile_worker._private_jobs"
            )
            assert {tuple(row) for row in rows} == {(1, None, MAX_MESSAGE)}
            assert len(gate.started) == 20
        await connection.close(timeout=10)
