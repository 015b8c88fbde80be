"""Workers of the shop: real pools in this process, and rows for those on hosts that do not exist."""

from __future__ import annotations

import asyncio
import json
import linecache
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from graphile_worker import Runner, parse_crontab, run
from graphile_worker.values import __version__

from .errors import ERRORS
from .schedules import CRONTAB
from .shop import NEW_VERSION, OLD_VERSION, TASKS, ShopTask

INSERT_POOL = """
insert into _private_py_workers
  (id, host, pid, version, tasks, concurrency, started_at, last_seen_at, liveness, heartbeat_interval,
   grace, jobs_held, running, app_version)
values
  ($1, $2, $3, $10, $5, $6, $7, now(), 'heartbeat', interval '1 day', interval '1 day', $8, $9::jsonb, $4)
"""
TAKE_JOBS = """
update _private_jobs set locked_at = now(), locked_by = $1, attempts = attempts + 1
where id in (
  select id from _private_jobs
  where is_available and job_queue_id is null and attempts = 0 and run_at <= now() order by id limit $2
)
returning id
"""


class SMTPServerDisconnected(Exception):
    """Has the name of the error that the mail library raises."""

    __module__ = "builtins"  # named without a module, as the past has it


LIBRARY = "/srv/shop/.venv/lib/python3.12/site-packages/aiosmtplib/smtp.py"
EMAIL = "/srv/shop/shop/tasks/email.py"
SOURCE = """
async def send_email(payload, helpers):
    await smtp.send_message(payload)
"""
"""Fails at the place where the past failed, so that both are one kind of error."""


def shop_tasks(pace: float = 1.0) -> dict[str, Any]:
    """Functions that take as long as the statistics say, and fail as the errors say."""
    return {task.name: _function(task, pace) for task in TASKS}


def _function(task: ShopTask, pace: float) -> Any:
    rng = random.Random(task.name)

    async def call(payload: Any, helpers: Any) -> None:
        await asyncio.sleep(pace * task.seconds * rng.lognormvariate(0, 0.4))

    return _mailing(call, rng) if task.name == "send_email" else call


@dataclass
class Email:
    """The payload of `send_email`, which the dashboard shows beside a job's."""

    to: str
    template: Literal["welcome", "receipt", "shipped", "password_reset"]
    user_id: int
    token: str
    locale: str = "en"
    attachments: list[str] | None = None


def _mailing(call: Any, rng: random.Random) -> Any:
    """The task whose file is the shop's, as far as tracebacks can tell."""

    class Mail:
        async def send_message(self, payload: Any) -> None:
            await call(payload, None)
            if rng.random() < 0.8:
                raise SMTPServerDisconnected(ERRORS[0].message)

    namespace: dict[str, Any] = {"smtp": Mail()}
    linecache.cache[EMAIL] = (len(SOURCE), None, SOURCE.splitlines(keepends=True), EMAIL)
    code = Mail.send_message.__code__.replace(co_filename=LIBRARY)
    Mail.send_message.__code__ = code  # type: ignore[method-assign, unused-ignore]
    exec(compile(SOURCE, EMAIL, "exec", dont_inherit=True), namespace)  # noqa: S102
    function = namespace["send_email"]
    function.__annotations__["payload"] = Email
    return function


async def write_pools(connection: Any, now: datetime) -> None:
    """Pools on other hosts, one of them with the version before."""
    names = [task.name for task in TASKS]
    for name, host, pid, slots, minutes in (
        ("worker-a1c4", "web-a", 4121, 20, 28), ("worker-b7f2", "web-b", 977, 10, 27),
        ("worker-c93e", "web-c", 3310, 10, 3100),
    ):  # fmt: skip
        jobs = await connection.fetch(TAKE_JOBS, name, slots // 3)
        running = [[row["id"], now.timestamp() - 2.5 * index - 0.4] for index, row in enumerate(jobs)]
        tasks = names if name != "worker-c93e" else names[:6]
        await connection.execute(
            INSERT_POOL, name, host, pid, OLD_VERSION if minutes > 100 else NEW_VERSION,
            tasks, slots, now - timedelta(minutes=minutes), len(jobs), json.dumps(running), __version__,
        )  # fmt: skip


@asynccontextmanager
async def working(url: str, *, schema: str = "graphile_worker", pace: float = 1.0) -> AsyncIterator[Runner]:
    """A real worker with the shop's tasks and crontab, until the block ends."""
    runner = await run(
        connection_string=url,
        schema=schema,
        task_list=shop_tasks(pace),
        parsed_cron_items=parse_crontab(CRONTAB),
        app_version=NEW_VERSION,
        concurrency=8,
        handle_signals=False,
    )
    try:
        yield runner
    finally:
        await runner.kill()
