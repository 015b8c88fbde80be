"""The audit of commands that change something; see `queries/audit.py`."""

from __future__ import annotations

import getpass
import logging
import os
import socket
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...client import WorkerUtils

logger = logging.getLogger("graphile_worker.audit")


async def record_command(
    utils: WorkerUtils, action: str, parameters: Mapping[str, Any], *, jobs: int = 0
) -> None:
    """Add a row, if the table exists. The change is made by now, so nothing that happens here fails."""
    from ...queries.audit import Actor, record

    given = {name: _plain(value) for name, value in parameters.items() if value not in (None, False, (), "")}
    ids = [job_id for job_id in given.get("ids", ()) if isinstance(job_id, int)]
    target = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in given.items() if name != "yes")
    try:
        async with utils.with_pg_client() as connection, connection.transaction():
            await record(
                connection, utils.schema, Actor(user_name(), "command line", socket.gethostname()), action,
                target=target, jobs=jobs, job_ids=ids, details=given,
            )  # fmt: skip
    except Exception as error:
        logger.debug("the command is not in the audit: %s", error)


def user_name() -> str:
    """The user of the operating system."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name for the number, as in some containers
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, str | int | float):
        return value
    return value.isoformat() if isinstance(value, datetime) else str(value)
