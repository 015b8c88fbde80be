"""Each line marked `# wrong` must be refused by a type checker, and no other line."""

from __future__ import annotations

from dataclasses import dataclass

from graphile_worker.client import WorkerUtils
from graphile_worker.spec import JobSpec
from graphile_worker.tasks import JobHelpers, task


@dataclass
class Letter:
    to: str


class Mailer: ...


@task
async def send(payload: Letter, helpers: JobHelpers) -> None:
    print(helpers.extension(Mailer).sent)  # wrong
    await helpers.add_job(send, {"to": "a"})  # wrong
    await helpers.add_job(send, Letter("a"), max_attempt=3)  # wrong


@task(queue_name=5)  # wrong
def receive(payload: Letter) -> None: ...


@task(job_key_mode="sometimes")  # wrong
def later() -> None: ...


@task
def plain(payload: Letter, helpers: JobHelpers) -> None:
    helpers.sync.add_job(send, "a@example.com")  # wrong


async def use(utils: WorkerUtils, helpers: JobHelpers) -> None:
    await utils.add_job(send, {"to": "a@example.com"})  # wrong
    await utils.add_job(send)  # wrong
    await utils.add_job(send, 5)  # wrong
    await send({"to": "a@example.com"}, helpers)  # wrong
    plain(Letter("a"))  # wrong
    send.spec("a@example.com")  # wrong
    JobSpec(send, "a@example.com")  # wrong
