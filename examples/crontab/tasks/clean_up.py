"""The task `clean_up`: a placeholder for deleting old data."""

from __future__ import annotations

from typing import Any

from graphile_worker import JobHelpers


async def clean_up(payload: dict[str, Any], helpers: JobHelpers) -> None:
    helpers.logger.info("deleting what is older than %s days", payload["older_than_days"])
