"""`make demo`: an embedded PostgreSQL, a worker, and jobs that run, fail, queue up, merge and are retried.

It uses a temporary folder and ends within a few seconds.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphile_worker import JobHelpers, JobSpec, make_worker_utils, run, run_migrations, task
from graphile_worker.database.embedded import EmbeddedPostgres
from graphile_worker.hooks import Events
from graphile_worker.hooks.events import JobErrored, JobSucceeded


@dataclass
class Greeting:
    name: str


@task
async def greet(payload: Greeting) -> None:
    say(f"    hello, {payload.name}")


@task(max_attempts=3)
async def flaky(payload: dict[str, str], helpers: JobHelpers) -> None:
    if helpers.job.attempts == 1:
        raise RuntimeError("the mail server did not answer")
    say(f"    sent to {payload['to']} at attempt {helpers.job.attempts}")


@task(queue_name="invoices")
def number_invoice(payload: dict[str, int]) -> None:
    """A plain function: it runs in a thread and does not block other tasks."""
    say(f"    invoice {payload['number']} written; the next one of the queue starts after it")


@task
async def import_rows(payload: list[int]) -> list[BaseException | None]:
    say(f"    a batch of {len(payload)} rows: {payload}")
    return [ValueError(f"row {row} is bad") if row < 0 else None for row in payload]


@task
async def reindex(payload: dict[str, str]) -> None:
    say(f"    reindexed {payload['product']} once, with the latest request: {payload['because']}")


def say(text: str) -> None:
    print(text, flush=True)


class Outcomes:
    """Counts outcomes, so that the demo can wait for them."""

    def __init__(self) -> None:
        self.events = Events()
        self.events.on(JobSucceeded, self._succeeded)
        self.events.on(JobErrored, self._failed)
        self._succeeded_count = 0
        self._failed_count = 0
        self._changed = asyncio.Condition()

    async def _succeeded(self, event: JobSucceeded) -> None:
        async with self._changed:
            self._succeeded_count += 1
            self._changed.notify_all()

    async def _failed(self, event: JobErrored) -> None:
        message = " ".join(str(event.error).splitlines())
        say(f"    {event.job.task_identifier} failed at attempt {event.job.attempts}: {message}")
        async with self._changed:
            self._failed_count += 1
            self._changed.notify_all()

    async def failures(self, count: int) -> None:
        """Wait until this many attempts have failed in total."""
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: self._failed_count >= count)

    async def successes(self, count: int) -> None:
        """Wait until this many jobs have succeeded in total."""
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: self._succeeded_count >= count)


async def demo(url: str) -> None:
    await run_migrations(connection_string=url)
    outcomes = Outcomes()
    # A worker logs failures with a traceback. These are intended, and reported by an observer instead.
    logging.getLogger("graphile_worker").setLevel(logging.CRITICAL)
    tasks: list[Callable[..., Any]] = [greet, flaky, number_invoice, import_rows, reindex]
    async with make_worker_utils(connection_string=url) as utils:
        say("\n* Five requests to reindex one product, before a worker runs: one job, because of its key.")
        for because in ("price", "stock", "title", "image", "a new description"):
            await utils.add_job(reindex, {"product": "socks", "because": because}, job_key="reindex:socks")

        say("* A worker starts.")
        async with run(
            connection_string=url,
            task_list=tasks,
            concurrency=4,
            events=outcomes.events,
            poll_interval=0.5,
        ):
            await outcomes.successes(1)

            say("\n* A typed payload, and a job added in plain SQL.")
            await utils.add_job(greet, Greeting("Ada"))
            async with utils.with_pg_client() as connection:
                await connection.execute("select graphile_worker.add_job('greet', '{\"name\": \"Grace\"}')")
            await outcomes.successes(3)

            say("\n* Three jobs of one named queue: one at a time, although four slots are free.")
            await utils.add_jobs([JobSpec(number_invoice, {"number": number}) for number in (1, 2, 3)])
            await outcomes.successes(6)

            say("\n* A job that fails is retried, by default after e, e², e³ … seconds.")
            await utils.add_job(flaky, {"to": "ada@example.com"})
            await outcomes.successes(7)

            say("\n* A batch job in which one row fails: only that row stays, for the next attempt.")
            job = await utils.add_job(import_rows, [1, -2, 3], max_attempts=1)
            await outcomes.failures(2)
            left = await utils.jobs.get(job.id)
            say(f"    what is left of the job: {left.payload if left else None}")
            say("\n* The worker stops: running jobs finish, all outcomes are written.")
    say("* Done.\n")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="graphile-worker-demo-") as folder:
        say("* An embedded PostgreSQL starts.")
        with EmbeddedPostgres(Path(folder) / "postgres") as server:
            asyncio.run(demo(server.url()))


if __name__ == "__main__":
    main()
