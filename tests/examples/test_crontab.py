"""The crontab is valid, its items are registered, and missed runs are backfilled."""

from __future__ import annotations

from typing import Any

import asyncpg

from support.working import until

ITEMS = {"heartbeat", "clean_up", "weekly_report", "monthly_report"}


async def test_a_missed_run_is_backfilled(example: Any, empty_database_url: str) -> None:
    printed = example.run()
    assert "4 recurring jobs, no problems" in printed
    assert "heartbeat" in printed

    log = example.start()
    await until(lambda: "ready" in log.read_text(), timeout=60)
    connection = await asyncpg.connect(empty_database_url)
    try:

        async def known() -> bool:
            rows = await connection.fetch("select identifier from graphile_worker._private_known_crontabs")
            return {row["identifier"] for row in rows} == ITEMS

        await until(known, timeout=60)
        example.stop()
        # As if no worker had been running for five minutes.
        await connection.execute(
            "update graphile_worker._private_known_crontabs "
            "set known_since = now() - interval '1 hour', last_execution = now() - interval '5 minutes' "
            "where identifier = 'heartbeat'"
        )
        log = example.start(again=True)
        await until(lambda: log.read_text().count("(backfilled)") >= 4, timeout=60)
        assert example.is_done
    finally:
        await connection.close()
