"""The primary dies and a standby is promoted: streaming replication between two real servers."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from faults.scene import BRIEF, PATIENCE, SETTINGS, Log, Ran, fresh_database, own_server, stop_server
from graphile_worker import make_worker_utils
from graphile_worker.database.connections import open as opening
from graphile_worker.database.connections.open import connect
from graphile_worker.database.embedded import EmbeddedPostgres
from graphile_worker.errors import ConnectionFailedError
from graphile_worker.hooks.events import WorkerGetJobError
from graphile_worker.testing.results import EventRecorder
from support.scratch import scratch_folder
from support.working import Gate, Jobs, until, workers_of


@pytest.fixture(scope="module")
def primary() -> Iterator[EmbeddedPostgres]:
    with own_server() as server:
        if not backup_program(server).exists():
            pytest.skip(f"there is no pg_basebackup in {server.bin_dir}")
        yield server


def backup_program(server: EmbeddedPostgres) -> Path:
    return server.bin_dir / "pg_basebackup"


def socket_of(server: EmbeddedPostgres) -> str:
    return parse_qs(urlsplit(server.url()).query)["host"][0]


@contextmanager
def standby_of(primary: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """A server that follows the primary."""
    with scratch_folder() as folder:
        cluster = folder / "cluster"
        subprocess.run(
            [
                *(str(backup_program(primary)), "-D", str(cluster), "-h", socket_of(primary)),
                *("-U", "postgres", "-R", "-X", "stream", "-c", "fast", "--no-sync"),
            ],
            check=True,
            timeout=PATIENCE,
            env={**os.environ, "LC_ALL": "C"},
        )
        owner = next(primary.data_dir.glob("cluster")).stat()
        for path in (cluster, *cluster.rglob("*")):
            shutil.chown(path, owner.st_uid, owner.st_gid)
        known = json.loads((primary.data_dir / "connection.json").read_text())
        (folder / "connection.json").write_text(json.dumps(known | {"socket_folder": "", "tcp_port": None}))
        with EmbeddedPostgres(folder, settings=SETTINGS, bin_dir=primary.bin_dir) as standby:
            yield standby


def url_of_both(primary: EmbeddedPostgres, standby: EmbeddedPostgres, database: str) -> str:
    return (
        f"postgresql://postgres@/{database}?host={socket_of(primary)},{socket_of(standby)}"
        "&port=5432,5432&target_session_attrs=read-write"
    )


async def wait_for_standby(primary: EmbeddedPostgres) -> None:
    """From now on a commit is one on both servers."""
    admin = await asyncpg.connect(primary.url())

    async def is_synchronous() -> bool:
        return await admin.fetchval(
            "select count(*) = 1 from pg_stat_replication where state = 'streaming' and sync_state = 'sync'"
        )

    await admin.execute("alter system set synchronous_standby_names = '*'")
    await admin.execute("select pg_reload_conf()")
    await until(is_synchronous, timeout=PATIENCE)
    await admin.close()


async def test_a_worker_and_a_client_go_on_at_the_promoted_standby(
    primary: EmbeddedPostgres, recorder: EventRecorder, ran: Ran, log: Log
) -> None:
    await fresh_database(primary, "failover")
    with standby_of(primary) as standby:
        await wait_for_standby(primary)
        url = url_of_both(primary, standby, "failover")
        async for workers in workers_of(url):
            async with make_worker_utils(connection_string=url) as utils:
                gate = Gate()
                await utils.add_job("wait")
                runner = await workers.start(
                    {"note": ran, "wait": gate}, events=recorder.events, concurrency=3, **BRIEF
                )
                await gate.until_inside(1, timeout=PATIENCE)
                for number in range(20):
                    await utils.add_job("note", {"n": number})
                await ran.until(*range(20))
                await log.says("connected; listening")
                log.clear()

                await stop_server(primary, signal.SIGQUIT)
                gate.open()
                await log.says("cannot listen for new jobs", "heartbeat failed")
                await log.says("is not what target_session_attrs asks for")  # there is only a standby
                promoted = await asyncpg.connect(standby.url("failover"))
                assert await promoted.fetchval("select pg_promote()")

                await add_when_possible(utils, range(20, 40))
                await ran.until(*range(40))
                await log.says("heartbeat restored", "connected; listening")
                jobs = Jobs(promoted)
                await until(partial(is_alive_at, promoted, runner.pool_id), timeout=PATIENCE)
                await until(partial(is_listening_at, promoted), timeout=PATIENCE)
                await jobs.add("note", {"n": 40})  # heard of: the poll interval is a minute
                await ran.until(40)
                await jobs.until_gone(timeout=PATIENCE)
                assert await jobs.locked() == 0
                ran.assert_each_once(41)
                assert len(gate.started) == 1
                assert recorder.count(WorkerGetJobError) <= 60
                assert len(log.lines) <= 40, log.lines
                await workers.stop(runner)
                await promoted.close()


async def add_when_possible(utils: Any, numbers: range) -> None:
    """As a program does that must add its jobs: with a key, so that adding twice does no harm."""
    for number in numbers:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await utils.add_job("note", {"n": number}, job_key=f"number {number}")
                    break
                except (ConnectionFailedError, asyncpg.PostgresError):
                    await asyncio.sleep(0.1)


async def is_alive_at(connection: Any, pool_id: str) -> bool:
    """Whether the pool's lock is held there."""
    return await connection.fetchval(
        "select exists (select from graphile_worker._private_py_workers worker "
        "join pg_locks held on held.pid = worker.backend_pid and held.locktype = 'advisory' "
        "where worker.id = $1 and worker.liveness = 'lock')",
        pool_id,
    )


async def is_listening_at(connection: Any) -> bool:
    return await connection.fetchval(
        "select count(*) = 1 from pg_stat_activity where datname = current_database() "
        "and application_name = 'graphile_worker' and query ilike 'listen \"%worker:ping%' and state = 'idle'"
    )


# -- a server whose machine vanished without a word ----------------------------------------------------------


@pytest.fixture
async def silent_host() -> AsyncIterator[int]:
    """A port that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(50)
        yield listener.getsockname()[1]


async def test_a_host_that_does_not_answer_does_not_use_up_the_time_of_the_next_one(
    silent_host: int, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "CONNECT_WITHIN", 2.0)  # plenty for the other one on a busy machine
    parts = urlsplit(database_url)
    query = parse_qs(parts.query)
    host = query.get("host", [parts.hostname or "localhost"])[0]
    port = query.get("port", [str(parts.port or 5432)])[0]
    user = parts.netloc.rpartition("@")[0]
    url = (
        f"postgresql://{user}@{parts.path}?host=127.0.0.1,{host}&port={silent_host},{port}&sslmode=disable"
        "&target_session_attrs=read-write"
    )
    connection = await connect(url)
    assert await connection.fetchval("select 1") == 1
    await connection.close()
    pool = await opening.open_pool(url)
    assert await pool.fetchval("select 1") == 1  # type: ignore[attr-defined]
    await pool.close()


async def test_servers_of_which_none_will_do_are_all_named(silent_host: int) -> None:
    with pytest.raises(ConnectionFailedError, match=f"127.0.0.1:{silent_host}, 127.0.0.1:1 cannot be"):
        await connect(
            f"postgres://a@127.0.0.1:{silent_host},127.0.0.1:1/db?connect_timeout=0.2&sslmode=disable"
        )
