"""The Flask application: started by its one command, with a worker that counts the words of a note."""

from __future__ import annotations

import json
from typing import Any

import httpx

from support.working import until

STARTS_WITHIN = 120  # seconds


async def test_a_note_gets_its_words_counted(example: Any) -> None:
    del example.environment["DATABASE_URL"]
    example.blocks = [
        block.replace("localhost:8000", f"localhost:{example.port}") for block in example.blocks
    ]
    log = example.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{example.port}", timeout=60) as client:

        async def answers() -> bool:
            try:
                return (await client.get("/notes/0")).status_code == 404
            except httpx.TransportError:
                assert example._started[-1][0].poll() is None, log.read_text()
                return False

        await until(answers, timeout=STARTS_WITHIN, every=0.2)
        note = json.loads(example.run())["id"]

        async def is_counted() -> bool:
            return bool((await client.get(f"/notes/{note}")).json()["words"] == 3)

        await until(is_counted, every=0.1)
    assert example.is_done
    example.stop()
