"""Wide queues and rules for flags: the first job of a row, and the next one that a write takes."""

from __future__ import annotations

from typing import Any

import pytest

from graphile_worker import Limit, task
from support.working import SCHEMA, Jobs, Workers, until

RULES: dict[str, dict[str, list[str]]] = {
    "accepted": {"accepted_flags": ["gpu"]},
    "allowed": {"flag_allowlist": ["gpu"], "accepted_flags": ["gpu", "eu"]},
    "forbidden": {"forbidden_flags": ["eu"]},
}
"""Each takes the jobs with the flag gpu and leaves those with the flag eu."""


@pytest.mark.parametrize("limit", [None, Limit("some", concurrency=4)], ids=["unlimited", "limited"])
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
async def test_a_wide_queue_keeps_the_rules(
    jobs: Jobs, any_workers: Workers, rules: Any, limit: Limit | None
) -> None:
    """Refused jobs stay as they were, and do not hold up those behind them."""
    ran: list[int] = []

    @task("sync", queue_concurrency=3, limit=limit)
    async def sync(payload: dict[str, Any]) -> None:
        ran.append(payload["n"])

    ids = await jobs.add_many("sync", 60, queue="tenant")
    flags = "case when id % 2 = 0 then '{\"eu\": true}' else '{\"gpu\": true}' end"
    await jobs.connection.execute(f"update {SCHEMA}._private_jobs set flags = ({flags})::jsonb")
    await any_workers.start([sync], concurrency=10, **rules)
    refused = {id_ for id_ in ids if id_ % 2 == 0}

    async def is_done() -> bool:
        return await jobs.count() == len(refused)

    await until(is_done)
    rows = await jobs.all()
    assert {row["id"] for row in rows} == refused
    assert len(ran) == len(set(ran)) == 30
    assert {(row["attempts"], row["locked_by"]) for row in rows} == {(0, None)}
