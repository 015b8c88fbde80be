"""The task `heartbeat`: logs which minute it ran for, and whether the run was backfilled."""

from __future__ import annotations

from typing import Any

from graphile_worker import JobHelpers


async def heartbeat(payload: dict[str, Any], helpers: JobHelpers) -> None:
    run = payload["_cron"]
    backfilled = " (backfilled)" if run["backfilled"] else ""
    helpers.logger.info("heartbeat of %s%s", run["ts"], backfilled)
