"""The task `report`: one task for two crontab items, with different payloads."""

from __future__ import annotations

from typing import Any

from graphile_worker import JobHelpers


async def report(payload: dict[str, Any], helpers: JobHelpers) -> None:
    helpers.logger.info("the %s report of %s", payload["kind"], payload["_cron"]["ts"])
