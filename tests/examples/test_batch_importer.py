"""Valid rows are stored; the invalid one stays in its job until the job is failed."""

from __future__ import annotations

from typing import Any

import asyncpg


async def test_only_the_row_that_failed_stays(example: Any, empty_database_url: str) -> None:
    printed = example.run()
    assert "added 1 job(s)" in printed
    assert "stored 4 of 5 people" in printed
    connection = await asyncpg.connect(empty_database_url)
    try:
        assert await connection.fetchval("select count(*) from people") == 4
        listed = example.run()
        assert "Jane Doe" in listed
        assert "Lovelace" not in listed
        example.run()
        assert example.is_done
        assert await connection.fetchval("select count(*) from graphile_worker.jobs") == 0
    finally:
        await connection.close()
