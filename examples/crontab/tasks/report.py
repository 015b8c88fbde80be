"""The task `report`: one task, two items of the crontab, told apart by their payload."""

from __future__ import annotations

from typing import Any

from graphile_worker import JobHelpers


async def report(payload: dict[str, Any], helpers: JobHelpers) -> None:
    helpers.logger.info("the %s report of %s", payload["kind"], payload["_cron"]["ts"])
