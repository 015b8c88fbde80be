"""The Django site: started by its one command, with a worker that runs a task of Django's framework."""

from __future__ import annotations

from typing import Any

import httpx

from support.working import until

STARTS_WITHIN = 120  # seconds


async def test_signing_up_runs_a_task(example: Any) -> None:
    del example.environment["DATABASE_URL"]
    example.blocks = [
        block.replace("localhost:8000", f"localhost:{example.port}") for block in example.blocks
    ]
    log = example.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{example.port}", timeout=60) as client:

        async def answers() -> bool:
            try:
                return (await client.get("/")).status_code == 200
            except httpx.TransportError:
                assert example._started[-1][0].poll() is None, log.read_text()
                return False

        async def is_welcomed() -> bool:
            return "welcomed ada@example.com" in (await client.get("/")).text

        await until(answers, timeout=STARTS_WITHIN, every=0.2)
        example.run()
        await until(is_welcomed, every=0.1)
    assert example.is_done
    example.stop()
    assert "welcome, ada@example.com" in log.read_text()
