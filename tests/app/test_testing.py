"""The test helpers of users with an app: `run_jobs(app=…)`, and the configured app."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from graphile_worker import App, Job, JobHelpers, WorkerUtils
from graphile_worker.errors import CrontabError, LifespanError
from graphile_worker.testing import FakeClock, RunJobs
from testing.project import Project


class Mailer:
    """Application state that remembers what was sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []


class FakeMailer(Mailer):
    """What a test puts in its place."""


class Shop:
    """An app, and what happened to its lifespan."""

    def __init__(self) -> None:
        self.mailer = Mailer()
        self.said: list[str] = []
        self.app = App(lifespan=self.lifespan, crontab="0 4 * * * send")
        self.app.hooks.before_run(self.note)

        @self.app.task
        async def send(payload: dict[str, Any], helpers: JobHelpers) -> None:
            helpers.extension(Mailer).sent.append(payload.get("to", ""))
            if payload.get("again"):
                await helpers.add_job("send", {"to": "again"})

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[Mailer]:
        self.said.append("entered")
        yield self.mailer
        self.said.append("left")

    def note(self, job: Job) -> None:
        self.said.append("before_run")


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def test_jobs_run_with_the_tasks_hooks_and_state_of_an_app(
    graphile_worker_utils: WorkerUtils, run_jobs: RunJobs, shop: Shop
) -> None:
    await graphile_worker_utils.add_job("send", {"to": "ada", "again": "yes"})
    ran = await run_jobs(app=shop.app)
    assert len(ran.check()) == 2
    assert shop.mailer.sent == ["ada", "again"]
    assert shop.said == ["entered", "before_run", "before_run", "left"]


async def test_the_lifespan_is_entered_once_while_time_passes(
    graphile_worker_clock: FakeClock, graphile_worker_utils: WorkerUtils, run_jobs: RunJobs, shop: Shop
) -> None:
    """The recurring jobs of the app are added, each in a drain of its own."""
    ran = await run_jobs(app=shop.app, until=timedelta(days=3))
    assert len(ran.check()) >= 3
    assert (shop.said.count("entered"), shop.said.count("left")) == (1, 1)
    with pytest.raises(CrontabError, match="the identifier 'send' is already used"):
        await run_jobs(app=shop.app, crontab="0 5 * * * send", until=timedelta(days=1))


async def test_extensions_of_the_call_replace_those_of_the_lifespan(
    graphile_worker_utils: WorkerUtils, run_jobs: RunJobs, shop: Shop
) -> None:
    fake = FakeMailer()
    await graphile_worker_utils.add_job("send", {"to": "ada"})
    (await run_jobs(app=shop.app, extensions={Mailer: fake})).check()
    assert (fake.sent, shop.mailer.sent) == (["ada"], [])


async def test_tasks_without_the_lifespan(
    graphile_worker_utils: WorkerUtils, run_jobs: RunJobs, shop: Shop
) -> None:
    mailer = Mailer()
    await graphile_worker_utils.add_job("send", {"to": "ada"})
    (await run_jobs(shop.app.tasks, extensions=[mailer])).check()
    assert mailer.sent == ["ada"]
    assert shop.said == []


async def test_a_lifespan_that_fails_fails_the_test(run_jobs: RunJobs) -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield
        raise OSError("cannot close")

    with pytest.raises(LifespanError, match="cannot close"):
        await run_jobs(app=App(tasks={"send": print}, lifespan=lifespan))


async def test_a_lifespan_that_hangs_is_limited_by_the_timeout(run_jobs: RunJobs) -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        await asyncio.Event().wait()
        yield

    with pytest.raises(TimeoutError, match=r"run_jobs took longer than 0\.05 s"):
        await run_jobs(app=App(tasks={"send": print}, lifespan=lifespan), timeout=0.05)


def test_the_configured_app_is_used_and_its_options_too(tmp_path: Path, server_url: str) -> None:
    project = Project(tmp_path, server_url)
    files: dict[str, Any] = {
        "pytest.ini": "[pytest]\nfilterwarnings = error\nasyncio_mode = auto\n"
        "asyncio_default_fixture_loop_scope = function\n",
        "graphile_worker.toml": 'app = "shop_worker:app"\n',
        "shop_worker.py": """
from contextlib import asynccontextmanager
from graphile_worker import App

@asynccontextmanager
async def lifespan():
    yield ["state"]

app = App(lifespan=lifespan, schema="of_app")

@app.task
async def send(payload, helpers):
    assert helpers.extension(str) == "state"
""",
        "test_shop.py": """
from shop_worker import send

async def test_sending(graphile_worker_utils, graphile_worker_options, run_jobs):
    assert graphile_worker_options.schema == "of_app"
    await graphile_worker_utils.add_job(send)
    assert len((await run_jobs()).check()) == 1

async def test_an_explicit_list_does_not_use_the_app(graphile_worker_utils, run_jobs):
    await graphile_worker_utils.add_job("other")
    assert len((await run_jobs({"other": lambda: None})).check()) == 1
""",
    }
    for name, text in files.items():
        project.write(name, text)
    assert "2 passed" in project.run()
