"""A type checker must find nothing wrong here."""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass
from typing import Any, assert_type

from graphile_worker.client import WorkerUtils
from graphile_worker.job import Job
from graphile_worker.spec import JobSpec
from graphile_worker.tasks import JobHelpers, QueueNames, WorkerServices, build_registry, task


@dataclass
class Letter:
    to: str


class Mailer:
    def send(self, letter: Letter) -> None: ...


@task
async def send(payload: Letter, helpers: JobHelpers) -> None:
    mailer = helpers.extension(Mailer)
    assert_type(mailer, Mailer)
    mailer.send(payload)
    assert_type(helpers.job, Job)
    assert_type(await helpers.get_queue_name(), str | None)
    await helpers.add_job(send, Letter("b@example.com"), job_key="k", connection=None)
    await helpers.add_job(sweep)
    await helpers.add_job("anything", {"a": 1}, priority=3)
    await helpers.add_jobs([send.spec(payload, max_attempts=3), JobSpec("other"), JobSpec(send, payload)])
    assert_type(await helpers.abortable(double_later(2)), int)


async def double_later(number: int) -> int:
    return 2 * number


@task("mail/receive", queue_name="mail", max_attempts=3, job_key_mode="replace")
def receive(payload: Letter) -> int:
    return 1


@task()
def sweep() -> None: ...


@task
def watch(helpers: JobHelpers) -> None:
    helpers.sync.add_job(receive, Letter("c@example.com"))
    helpers.sync.add_job(sweep, max_attempts=1)


@task
def loose(payload: Any, helpers: JobHelpers) -> None: ...


partial = task("partial")(functools.partial(receive.function))


async def use(utils: WorkerUtils, helpers: JobHelpers, names: QueueNames) -> None:
    await send(Letter("a@example.com"), helpers)
    assert_type(receive(Letter("a@example.com")), int)
    await utils.add_job(send, Letter("a@example.com"), job_key="welcome:1")
    await utils.add_job(receive, Letter("a@example.com"))
    await utils.add_job(sweep)
    await utils.add_job(watch)
    await utils.add_job(loose, {"anything": 1})
    await utils.add_jobs([send.spec(Letter("a@example.com"))])
    registry = build_registry([send, receive, sweep, watch, loose, double_later])
    assert_type(registry["send"].identifier, str)
    build_registry({"a": send, "b": lambda: None})
    WorkerServices(
        client=utils, acquire=utils.with_pg_client, queue_names=names, loop=asyncio.get_running_loop()
    )
