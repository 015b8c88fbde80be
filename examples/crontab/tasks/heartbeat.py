"""The task `heartbeat`: notes which minute it ran for, and whether that was late."""

from __future__ import annotations

from typing import Any

from graphile_worker import JobHelpers


async def heartbeat(payload: dict[str, Any], helpers: JobHelpers) -> None:
    run = payload["_cron"]
    late = " (made up for)" if run["backfilled"] else ""
    helpers.logger.info("heartbeat of %s%s", run["ts"], late)
