"""A database in which every text is an attack."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import asyncpg

from browser.attacks import ATTACKS, HUGE, nested
from graphile_worker import make_worker_utils

NAME = 128  # characters of a task identifier or queue name
KEY = 512
WRITE_JOBS = """
with attack as (select ordinality as n, value from unnest($1::text[]) with ordinality as each (value)),
tasks as (
  insert into _private_tasks (identifier) select left(value, 128) from attack returning id, identifier
),
queues as (
  insert into _private_job_queues (queue_name, locked_at, locked_by)
  select left(value, 128), case when n % 7 = 0 then now() end, case when n % 7 = 0 then left(value, 200) end
  from attack returning id, queue_name
)
insert into _private_jobs
  (task_id, job_queue_id, payload, key, flags, last_error, attempts, max_attempts, locked_at, locked_by,
   run_at)
select
  tasks.id, queues.id,
  json_build_object(value, value, 'password', value, 'list', json_build_array(value, value)),
  value, jsonb_build_object(value, true), value || chr(10) || value, case when n % 3 = 0 then 5 else 1 end, 5,
  case when n % 5 = 4 then now() end, case when n % 5 = 4 then value end,
  now() + (n % 4 - 2) * interval '1 hour'
from attack
join tasks on tasks.identifier = left(value, 128) join queues on queues.queue_name = left(value, 128)
returning id
"""
WRITE_WORKERS = """
insert into _private_py_workers
  (id, host, pid, version, tasks, concurrency, liveness, heartbeat_interval, grace, jobs_held, running,
   blocked)
select
  value, value, n, value, array[value, value], n, 'heartbeat', interval '1 day', interval '1 day', 1,
  jsonb_build_array(jsonb_build_array(n, 1.5)), jsonb_build_object('task', value, 'job', n, 'since', 1.5)
from unnest($1::text[]) with ordinality as each (value, n)
"""
WRITE_ERRORS = """
with each as (select value, n, n::integer as id from unnest($1::text[]) with ordinality as each (value, n)),
names as (insert into _private_py_task_names (id, identifier) select id, left(value, 128) from each
          on conflict do nothing),
groups as (
  insert into _private_py_error_groups
    (fingerprint, task_id, error_type, message, place, first_at, last_at, errors, permanent, last_job_id,
     first_version, last_version)
  select
    lpad(to_hex(n), 16, '0'), id, left(value, 200), value, value, now() - interval '1 hour', now(), n, 1, n,
    value, value
  from each
),
history as (
  insert into _private_py_history
    (job_id, task_id, state, queue_name, job_key, priority, attempts, max_attempts, created_at, run_at,
     finished_at, pool_id, flags, payload, result, error, expires_on)
  select n, id, 'failed', value, value, 0, 1, 5, now(), now(), now(), value, jsonb_build_object(value, true),
    json_build_object(value, value), json_build_object(value, value), value, $2
  from each
)
insert into _private_py_errors
  (job_id, attempt, task_id, failed_at, duration, is_final, error_type, message, traceback, fingerprint,
   pool_id, version, expires_on)
select n, 1, id, now(), 1, true, left(value, 200), value, value || chr(10) || value,
  lpad(to_hex(n), 16, '0'), value, value, $2
from each
"""
WRITE_STATISTICS = """
insert into _private_py_minutes
  (minute, task, pool_id, completed, failed, permanently_failed, run_seconds, wait_seconds, longest,
   run_times, wait_times)
select
  date_trunc('minute', now()) - n % 50 * interval '1 minute', value, value, n, n, n, 1, 1, 1, '{1}', '{1}'
from unnest($1::text[]) with ordinality as each (value, n)
"""
WRITE_ADMIN = """
with each as (select value, n from unnest($1::text[]) with ordinality as each (value, n)),
audit as (
  insert into _private_py_audit
    (at, who, how, origin, action, target, jobs, job_ids, details, operation_id)
  select
    now() - n % 50 * interval '1 minute', value, left(value, 60), value,
    case n % 4 when 0 then 'pause_queue' when 1 then 'retry' when 2 then 'delete' else value end,
    value, n, array[n], json_build_object(value, value, 'reason', value),
    case when n % 8 = 0 then n end
  from each
),
operations as (
  insert into _private_py_operations
    (audit_id, action, arguments, chosen, target, state, stage, expected, expected_kind, up_to, changed, note,
     finished_at, runner)
  select
    n, case when n % 3 = 1 then 'delete' else 'retry' end, json_build_object('reason', value, 'canary', 1),
    json_build_object('filter', 'task:' || to_json(value)::text), value,
    case n % 3 when 0 then 'done' when 1 then 'stopped' else 'failed' end,
    case when n % 3 = 2 then 'rest' else 'all' end, n, 'exact', n, n, value, now(), value
  from each
),
muted as (
  insert into _private_py_muted_errors (fingerprint, version, who, reason)
  select lpad(to_hex(n), 16, '0'), value, value, value from each where n % 20 = 0
),
deploys as (
  insert into _private_py_deploys (version, started_at)
  select value, now() - n % 60 * interval '1 minute' from each where n % 20 = 1
),
runs as (
  insert into _private_py_schedule_runs (identifier, job_ids, due_at)
  select left(value, 128), array[n, n + 1], array[now(), now() - interval '1 hour'] from each
),
pauses as (
  insert into _private_py_schedule_pauses (identifier, reason)
  select left(value, 128), value from each where n % 5 = 0
)
insert into _private_py_schedules
  (pool_id, identifier, position, task, pattern, zone, payload, options, source)
select
  value, left(value, 128), n, value, case when n % 2 = 0 then value else '0 4 * * *' end,
  case when n % 3 = 0 then value end, json_build_object(value, value),
  jsonb_build_object('queue_name', value, 'job_key', value, value, value), value
from each
"""


async def write_hostile(url: str) -> None:
    """Every attack in every text column of our tables."""
    async with make_worker_utils(connection_string=url) as utils:
        await utils.migrate()
    connection = await asyncpg.connect(url, server_settings={"search_path": "graphile_worker"})
    try:
        await _write(connection, ATTACKS)
    finally:
        await connection.close()
    await _control(url, ATTACKS)


async def _write(connection: Any, attacks: Sequence[str]) -> None:
    names = [attack[:NAME] for attack in attacks]
    assert len(set(names)) == len(attacks) >= 200
    expires = (await connection.fetchval("select now()") + timedelta(days=7)).date()
    for table in ("_private_py_errors", "_private_py_history"):
        await connection.execute(
            "select _private_py_add_partition(to_regclass($1::text), $2)", table, expires
        )
    await connection.execute(WRITE_ERRORS, list(attacks), expires)
    await connection.execute(WRITE_JOBS, list(attacks))
    await connection.execute(WRITE_WORKERS, list(attacks))
    await connection.execute(WRITE_STATISTICS, list(attacks))
    await connection.execute(WRITE_ADMIN, list(attacks))
    await connection.execute(
        "insert into _private_known_crontabs (identifier, known_since, last_execution) "
        "select left(unnest($1::text[]), 128), now(), now()", list(attacks),
    )  # fmt: skip
    for huge in HUGE:
        await connection.execute(
            "select add_job('huge', json_build_object('text', $1::text), queue_name => 'huge')", huge
        )
        await connection.execute(
            "update _private_jobs set last_error = $1 where id = (select max(id) from _private_jobs)", huge
        )
    await connection.execute("select add_job('deep', $1::text::json)", nested(900))
    await connection.execute("select add_job('nul', $1::text::json)", json.dumps({"a": "\0", "b\0": 1}))


async def _control(url: str, attacks: Sequence[str]) -> None:
    """Pauses with hostile names and reasons, by the client itself."""
    async with make_worker_utils(connection_string=url) as utils:
        for attack in attacks[::10]:
            await utils.queues.pause(attack[:NAME], reason=attack)
            await utils.pause(task=attack[:NAME], reason=attack)
