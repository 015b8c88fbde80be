"""The recording task of the Python workers: the same as in `scripts/work.mjs`, so that runs can be compared.

A payload says what its task does: `{"pause": milliseconds}`, `{"fail": message}`, `{"add": [name, payload]}`.
Of an array payload each item is looked at by itself, and the task returns one outcome per item.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from graphile_worker import JobHelpers

START = """
    INSERT INTO public.interop_runs (worker, job_id, task, payload, queue, attempt, key, priority, flags)
    VALUES ('python', $1, $2, $3, $4, $5, $6, $7, $8) RETURNING id
"""
END = "UPDATE public.interop_runs SET ended = clock_timestamp() WHERE id = $1 RETURNING id"


async def act(payload: Any, helpers: JobHelpers) -> None:
    given = payload if isinstance(payload, dict) else {}
    if pause := given.get("pause"):
        await asyncio.sleep(pause / 1000)
    if addition := given.get("add"):
        name, new_payload = addition
        await helpers.add_job(name, new_payload)
    if message := given.get("fail"):
        raise RuntimeError(message)


async def record(payload: Any, helpers: JobHelpers) -> list[BaseException | None] | None:
    job = helpers.job
    queue = None if job.job_queue_id is None else await helpers.get_queue_name()
    values = (job.id, job.task_identifier, json.dumps(payload), queue, job.attempts, job.key, job.priority)
    (row,) = await helpers.query(START, *values, json.dumps(job.flags))
    try:
        if not isinstance(payload, list):
            await act(payload, helpers)
            return None
        return await asyncio.gather(*(act(item, helpers) for item in payload), return_exceptions=True)
    finally:
        await helpers.query(END, row["id"])
