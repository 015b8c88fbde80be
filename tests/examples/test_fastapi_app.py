"""The web application adds a job with the user, and the worker runs it."""

from __future__ import annotations

import json
import shutil
import socket
from typing import Any

import asyncpg
import pytest

from support.working import until

pytest.importorskip("fastapi", reason="fastapi is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def _serves(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


async def test_signing_up_adds_a_job_that_the_worker_runs(example: Any, empty_database_url: str) -> None:
    example.start()
    await until(lambda: _serves(example.port), timeout=60)
    worker_log = example.start()
    assert json.loads(example.run()) == {"id": 1}

    connection = await asyncpg.connect(empty_database_url)
    try:

        async def welcomed() -> bool:
            return bool(await connection.fetchval("select welcomed_at is not null from users where id = 1"))

        await until(welcomed, timeout=60)
        assert json.loads(example.run())["welcomed_at"] is not None
        assert example.is_done
        await until(lambda: "Welcome, ada@example.com!" in worker_log.read_text(), timeout=60)

        # An address that is taken: neither a user nor a job.
        example.blocks.append(example.blocks[2].replace("--fail ", ""))
        assert "signed up already" in example.run()
        assert await connection.fetchval("select count(*) from users") == 1
        assert await connection.fetchval("select count(*) from graphile_worker.jobs") == 0
    finally:
        await connection.close()
