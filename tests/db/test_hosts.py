"""Connecting, and what happens to an attempt that was cancelled."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from faults.scene import own_server
from graphile_worker import run
from graphile_worker.database.connections import dsn
from graphile_worker.database.connections.open import connect
from support.working import PATIENCE, SELDOM, until


@pytest.fixture(scope="module")
def tcp_url() -> Iterator[str]:
    """A server over TCP, where the driver asks for encryption first."""
    with own_server(port=0) as server:
        yield server.url()


@pytest.fixture
async def complaints() -> list[dict[str, Any]]:
    """What the event loop would print."""
    found: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context))
    return found


class Mute:
    """A server on TCP that accepts connections and never says a word."""

    def __init__(self) -> None:
        self.accepted = asyncio.Event()
        self._ended = asyncio.Event()

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"postgresql://nobody@127.0.0.1:{port}/nothing"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._ended.wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted.set()
        await reader.read()
        writer.close()
        await writer.wait_closed()
        self._ended.set()


@pytest.mark.parametrize("turns", range(12))
async def test_a_connection_that_is_no_longer_wanted_is_closed_in_silence(
    tcp_url: str, turns: int, complaints: list[dict[str, Any]]
) -> None:
    attempt = asyncio.create_task(connect(tcp_url, application_name="unwanted"))
    for _ in range(turns):
        await asyncio.sleep(0)
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    witness = await asyncpg.connect(tcp_url)
    statement = "select count(*) = 0 from pg_stat_activity where application_name = 'unwanted'"
    await until(lambda: witness.fetchval(statement))
    await witness.close()
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []


async def test_a_server_that_never_answers_does_not_hold_up_a_cancellation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dsn, "CANCEL_TIMEOUT", 0.05)
    mute = Mute()
    async with asyncio.timeout(PATIENCE), mute as url:
        attempt = asyncio.create_task(connect(f"{url}?connect_timeout={SELDOM:.0f}"))
        await mute.accepted.wait()
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt


async def test_a_worker_that_is_stopped_at_once_says_nothing(
    tcp_url: str, complaints: list[dict[str, Any]]
) -> None:
    async def nothing() -> None:
        pass

    for _ in range(3):
        async with asyncio.timeout(PATIENCE):
            runner = await run(
                connection_string=tcp_url, task_list={"nothing": nothing}, handle_signals=False
            )
            await runner.stop()
        gc.collect()
        await asyncio.sleep(0)
    assert complaints == []
