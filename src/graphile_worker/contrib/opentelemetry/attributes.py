"""Names and values of the attributes of spans and metrics, by the messaging conventions of OpenTelemetry.

The destination is the task: workers subscribe to tasks, and there are few of them.
"""

from __future__ import annotations

from typing import Any

from ...hooks.hooks import DatabaseTarget

SYSTEM = "messaging.system"
OPERATION = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
MESSAGE_ID = "messaging.message.id"
MESSAGE_COUNT = "messaging.batch.message_count"
CLIENT_ID = "messaging.client.id"
ERROR_TYPE = "error.type"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"

ATTEMPT = "graphile_worker.attempt"
MAX_ATTEMPTS = "graphile_worker.max_attempts"
OUTCOME = "graphile_worker.outcome"
JOB_KEY = "graphile_worker.job_key"
QUEUE_NAME = "graphile_worker.queue_name"
SCHEMA = "graphile_worker.schema"
IS_EXISTING = "graphile_worker.is_existing"
CRON_ITEM = "graphile_worker.cron_item"


def of_operation(operation: str, task: str | None) -> dict[str, Any]:
    """The attributes that every span of an operation has; `task` is None if there are several."""
    found = {SYSTEM: "graphile_worker", OPERATION: operation, OPERATION_TYPE: operation}
    return found if task is None else {**found, DESTINATION: task}


def of_target(target: DatabaseTarget | None) -> dict[str, Any]:
    """The attributes of the database that is contacted, as far as it is known."""
    if target is None:
        return {}
    found = {SCHEMA: target.schema, SERVER_ADDRESS: target.address, SERVER_PORT: target.port}
    return {name: value for name, value in found.items() if value is not None}
