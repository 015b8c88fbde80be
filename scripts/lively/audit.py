"""What people did in the shop's dashboard, and when versions were deployed."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from .shop import DEPLOYED, NEW_VERSION, OLD_VERSION

ACTIONS: tuple[tuple[int, str, str, str, int, dict[str, Any]], ...] = (
    # minutes ago, who, action, target, jobs, details
    (9, "ada", "pause_queue", "invoices", 0, {"reason": "the bank is down"}),
    (17, "ada", "retry", "job 48213420", 1, {}),
    (3 * 60, "grace", "reschedule", "jobs with task:sync_crm state:failed", 4, {"run_at": "in 1 hour"}),
    (5 * 60, "ci", "run_schedule", "nightly_report", 1, {}),
    (26 * 60, "grace", "delete", "jobs with task:import_orders", 12, {}),
    (27 * 60, "linus", "resume_task", "deliver_webhook", 0, {}),
    (29 * 60, "linus", "pause_task", "deliver_webhook", 0, {"reason": "hooks.example is down"}),
    (50 * 60, "ada", "retry", "all failed jobs of charge_card", 312, {"rate": 20}),
)
"""The latest first."""
INSERT_ACTION = """
insert into _private_py_audit (at, who, how, origin, action, target, jobs, job_ids, details)
values ($1, $2, $3, '10.0.0.12', $4, $5, $6, '{}', $7)
"""
INSERT_OPERATIONS = """
with added as (
  insert into _private_py_operations
    (audit_id, action, arguments, chosen, target, rate, state, stage, expected, expected_kind, up_to, last_id,
     changed, skipped, created_at, updated_at, finished_at)
  select
    id, action, '{}', json_build_object('filter', 'state:failed'), target, 20, 'done', 'all', jobs, 'exact',
    48213000, 48213000, jobs - 1, 1, at, at + jobs * interval '50 ms', at + jobs * interval '50 ms'
  from _private_py_audit where jobs > 1
  returning id, audit_id
)
update _private_py_audit set operation_id = added.id from added where added.audit_id = _private_py_audit.id
"""


async def write_audit(connection: Any, now: datetime) -> None:
    """Rows of the audit, of operations and of deploys."""
    for minutes, who, action, target, jobs, details in reversed(ACTIONS):
        at = now - timedelta(minutes=minutes)
        how = "token" if who == "ci" else "password"
        await connection.execute(INSERT_ACTION, at, who, how, action, target, jobs, json.dumps(details))
    await connection.execute(INSERT_OPERATIONS)
    for version, minutes in ((OLD_VERSION, 3100), (NEW_VERSION, DEPLOYED)):
        await connection.execute(
            "insert into _private_py_deploys (version, started_at, last_started_at, starts) "
            "values ($1, $2, $2, 3)",
            version,
            now - timedelta(minutes=minutes),
        )
