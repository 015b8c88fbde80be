"""Recurring jobs that are overdue, from the database to the sentence of the overview."""

from __future__ import annotations

from typing import Any

import httpx

from support.working import SCHEMA, Workers


async def tidy() -> None: ...


async def test_an_overdue_job_among_many_is_seen(
    http: httpx.AsyncClient, workers: Workers, database_url: str, connection: Any
) -> None:
    """Also one that runs next much later than the others, so that it is not on the first page."""
    often = [f"0 * * * * tidy ?id=hourly-{number}" for number in range(40)]
    crontab = "\n".join([*often, "0 4 1 1 * tidy ?id=yearly"])
    await workers.start({"tidy": tidy}, connection_string=database_url, crontab=crontab)
    first = (await http.get("/api/v1/schedules")).json()
    assert first["next"] is not None
    assert "yearly" not in [each["identifier"] for each in first["items"]]
    await connection.execute(
        f"update {SCHEMA}._private_known_crontabs set last_execution = now() - interval '2 years' "
        "where identifier = 'yearly'"
    )
    found = (await http.get("/api/v1/overview")).json()
    assert found["level"] == "bad"
    assert "1 recurring job is overdue: yearly" in [each["title"] for each in found["findings"]]
    assert len(found["schedules"]) == 5
