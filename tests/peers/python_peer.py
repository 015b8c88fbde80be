"""The Python peer; see `protocol`. The argument is the URL of the database."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from datetime import datetime
from typing import Any

from graphile_worker import (
    JobHelpers,
    JobSpec,
    Runner,
    WorkerUtils,
    make_worker_utils,
    run,
)

BEGIN = "SELECT public.peer_begin('python', $1, $2, $3, $4, $5, $6, $7) AS run"
END = "SELECT public.peer_end($1, $2)"
GATE = "SELECT public.peer_gate_is_open($1) AS open"


async def act(payload: Any, helpers: JobHelpers) -> None:
    given = payload if isinstance(payload, dict) else {}
    if pause := given.get("pause"):
        await asyncio.sleep(pause / 1000)
    if gate := given.get("gate"):
        while not (await helpers.query(GATE, gate))[0]["open"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    if addition := given.get("add"):
        name, new_payload, *spec = addition
        await helpers.add_job(name, new_payload, **job_options(*spec))
    if helpers.job.attempts < given.get("fail_before", 0):
        raise RuntimeError(f"attempt {helpers.job.attempts} fails")


async def record(payload: Any, helpers: JobHelpers) -> list[BaseException | None] | None:
    job = helpers.job
    values = (os.getpid(), job.id, job.task_identifier, job.job_queue_id, job.attempts, job.key)
    (row,) = await helpers.query(BEGIN, *values, json.dumps(payload))
    outcome = "failed"
    try:
        if not isinstance(payload, list):
            await act(payload, helpers)
            outcome = "done"
            return None
        results = await asyncio.gather(*(act(item, helpers) for item in payload), return_exceptions=True)
        if not any(results):
            outcome = "done"
        return results
    finally:
        await helpers.query(END, row["run"], outcome)


def job_options(given: dict[str, Any] | None = None) -> dict[str, Any]:
    options = dict(given or {})
    if "run_at" in options:
        options["run_at"] = datetime.fromisoformat(options["run_at"])
    return options


def worker_options(given: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {
        "concurrency": given.get("concurrency", 4),
        "poll_interval": given.get("poll", 100) / 1000,
        "forbidden_flags": given.get("forbidden_flags", []),
    }
    for name in ("hold", "accepted_flags", "flag_allowlist"):
        if name in given:
            options[name] = given[name]
    if size := given.get("local_queue"):
        options |= {
            "local_queue": {"size": size},
            "complete_job_batch_delay": 0.002,
            "fail_job_batch_delay": 0.002,
        }
    if crontab := given.get("crontab"):
        options["crontab"] = crontab
    if patience := given.get("patience"):
        options |= {"graceful_shutdown_abort_timeout": patience / 2, "grace": patience}
    if given.get("recovery"):
        options |= {"heartbeat_interval": 1.0, "recovery_grace": 5.0, "sweep_interval": 0.3}
    return options


class Peer:
    """The calls of the protocol."""

    def __init__(self, url: str, utils: WorkerUtils) -> None:
        self.url = url
        self.utils = utils
        self.runner: Runner | None = None

    async def call(self, name: str, *arguments: Any) -> Any:
        match name, *arguments:
            case ["migrate"]:
                await self.utils.migrate()
            case ["add", task, payload, spec]:
                return (await self.utils.add_job(task, payload, **job_options(spec))).id
            case ["add_many", specs]:
                jobs = await self.utils.add_jobs(
                    [JobSpec(task, payload, **job_options(spec)) for task, payload, spec in specs]
                )
                return [job.id for job in jobs]
            case ["remove", key]:
                await self.utils.remove_job(key)
            case ["reschedule", job_ids, changes]:
                return [job.id for job in await self.utils.reschedule_jobs(job_ids, **job_options(changes))]
            case ["give_up", job_ids, reason]:
                return [job.id for job in await self.utils.permanently_fail_jobs(job_ids, reason)]
            case ["work", options]:
                tasks = dict.fromkeys(("echo", "tick", "batch"), record)
                given = worker_options(options)
                self.runner = await run(connection_string=self.url, task_list=tasks, **given)
                return self.runner.pool_id
            case _:
                raise ValueError(f"no call {name}")
        return None


class OneLine(logging.Formatter):
    """What is worth a look, without tracebacks, so that a test can judge line by line."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname} {record.getMessage()}".replace("\n", " | ")


def log_to_standard_error() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


async def answer(peer: Peer) -> None:
    """Until standard input ends."""
    reader = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await reader.readline():
        try:
            result = {"answer": await peer.call(*json.loads(line))}
        except Exception as error:
            result = {"error": repr(error)}
        print(json.dumps(result), flush=True)


async def main(url: str) -> None:
    async with make_worker_utils(connection_string=url) as utils:
        peer = Peer(url, utils)
        answering = asyncio.create_task(answer(peer))
        while peer.runner is None and not answering.done():
            await asyncio.wait([answering], timeout=0.02)
        if peer.runner is not None:
            ended = asyncio.create_task(peer.runner.wait())
            await asyncio.wait([answering, ended], return_when=asyncio.FIRST_COMPLETED)
            if not peer.runner.is_stopping:
                await peer.runner.stop()
            await ended
        answering.cancel()


if __name__ == "__main__":
    log_to_standard_error()
    asyncio.run(main(sys.argv[1]))
