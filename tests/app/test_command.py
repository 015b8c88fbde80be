"""`graphile-worker --app`: real processes, signals, configuration, and the commands beside the worker."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import asyncpg
import pytest

from cli.running import Run
from support.command_line import Call
from support.worker_process import WorkerProcess
from support.working import Jobs

WORKER = """
import asyncio, os
from contextlib import asynccontextmanager

from graphile_worker import App, CronItem, JobHelpers
from graphile_worker.hooks import FailJob
from graphile_worker.hooks.events import JobSucceeded


class Mailer:
    async def send(self, to):
        say(f"mail to {to}")


class Plugin:
    def install(self, hooks):
        say("plugin installed")

    async def start(self, worker):
        say("plugin started")

    async def stop(self):
        say("plugin stopped")


def say(text):
    print(f"{text} in {os.getpid()}\\n", end="", flush=True)  # one write, even if PYTHONUNBUFFERED is set


@asynccontextmanager
async def lifespan():
    say("entered")
    if os.environ.get("FAIL") == "start":
        raise ConnectionError("no mail server")
    yield [Mailer()]
    say("left")
    if os.environ.get("FAIL") == "end":
        raise OSError("cannot close")


app = App(
    lifespan=lifespan,
    plugins=[Plugin()],
    forbidden_flags=["forbidden"],
    cron_items=[CronItem(task="send", match="0 4 * * *", identifier="nightly")],
)


@app.events.on(JobSucceeded)
def succeeded(event):
    say(f"observed {event.job.task_identifier}")


@app.hooks.before_run
def refuse(job):
    if job.payload == {"refuse": True}:
        return FailJob("refused")


@app.task(max_attempts=3)
async def send(payload: dict[str, object], helpers: JobHelpers) -> None:
    await helpers.extension(Mailer).send(payload.get("to"))


@app.task
async def wait() -> None:
    say("waiting")
    while not os.path.exists("go_on"):
        await asyncio.sleep(0.02)
    say("waited")
"""


@pytest.fixture
def shop(place: Path) -> Path:
    (place / "shop").mkdir()
    (place / "shop" / "worker.py").write_text(WORKER)
    return place


def pids(worker: WorkerProcess, word: str) -> list[int]:
    return [int(pid) for pid in re.findall(rf"^{word} in (\d+)$", worker.output, re.MULTILINE)]


async def test_an_app_brings_state_hooks_plugins_flags_and_recurring_jobs(
    run: Run, shop: Path, database_url: str, jobs: Jobs
) -> None:
    await jobs.add("send", {"to": "b@example.com"}, flags=["forbidden"], max_attempts=1)
    await jobs.add("send", {"refuse": True}, max_attempts=1)
    await jobs.add("send", {"to": "a@example.com"})
    worker = run("--app", "shop.worker:app", DATABASE_URL=database_url)
    worker.wait_for("mail to a@example.com").wait_for("observed send").wait_for("permanently failed")
    worker.wait_for("plugin installed").wait_for("plugin started")
    identifiers = await jobs.connection.fetch(
        "select identifier from graphile_worker._private_known_crontabs"
    )
    assert [row["identifier"] for row in identifiers] == ["nightly"]
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143
    assert pids(worker, "entered") == pids(worker, "left") == [worker.pid]
    assert worker.output.index("plugin stopped") < worker.output.index("left in")
    left = [row["flags"] is not None for row in await jobs.all()]
    assert sorted(left) == [False, True]


async def test_a_signal_leaves_the_lifespan_after_the_last_job_has_ended(
    run: Run, shop: Path, database_url: str, jobs: Jobs
) -> None:
    worker = run("--app", "shop.worker:app", DATABASE_URL=database_url)
    await jobs.add("wait")
    worker.wait_for("waiting")
    worker.send(signal.SIGTERM)
    worker.wait_for("SIGTERM")
    assert not pids(worker, "left")
    (shop / "go_on").touch()
    assert worker.ended() == 143
    assert worker.output.index("waited in") < worker.output.index("left in")
    assert await jobs.count() == 0


def test_once(call: Call, shop: Path) -> None:
    call("add", "send", '{"to": "a@example.com"}').check()
    worker = call("--once", "--app", "shop.worker:app").check()
    assert "mail to a@example.com" in worker.out
    assert [word for word in ("entered in", "left in") if worker.out.count(word) != 1] == []


async def test_each_process_enters_the_lifespan_itself(
    run: Run, shop: Path, database_url: str, jobs: Jobs
) -> None:
    worker = run("--processes", 2, "--app", "shop.worker:app", DATABASE_URL=database_url)
    worker.wait_for("entered", times=2).wait_for("ready: ", times=2)
    entered = pids(worker, "entered")
    assert len({*entered, worker.pid}) == 3
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143
    assert sorted(pids(worker, "left")) == sorted(entered)


async def test_watch_leaves_the_lifespan_of_the_old_process(
    run: Run, shop: Path, database_url: str, jobs: Jobs
) -> None:
    worker = run("--watch", "--app", "shop.worker:app", DATABASE_URL=database_url).ready()
    (shop / "shop" / "worker.py").write_text(WORKER.replace("mail to", "post to"))
    worker.wait_for("shop/worker.py changed; restarting the worker").wait_for("ready: ", times=2)
    await jobs.add("send", {"to": "a@example.com"})
    worker.wait_for("post to a@example.com")
    first, second = pids(worker, "entered")
    assert first != second
    assert pids(worker, "left") == [first]
    worker.send(signal.SIGINT)
    assert worker.ended() == 130
    assert pids(worker, "left") == [first, second]


async def test_dev_forwards_it_and_needs_no_task_directory(
    run: Run, shop: Path, database_url: str, jobs: Jobs
) -> None:
    worker = run("dev", "--plain", "-c", database_url, "--app", "shop.worker:app").ready()
    await jobs.add("send", {"to": "a@example.com"})
    worker.wait_for("mail to a@example.com")
    worker.send(signal.SIGINT)
    assert worker.ended() == 130
    assert len(pids(worker, "left")) == 1


async def test_dev_uses_the_schema_of_the_app(run: Run, place: Path, empty_database_url: str) -> None:
    (place / "dev_app.py").write_text(
        "from graphile_worker import App\napp = App(tasks={'hello': print}, schema='of_app')\n"
    )
    run("dev", "--plain", "-c", empty_database_url, "--app", "dev_app:app").ready()
    connection = await asyncpg.connect(empty_database_url)
    try:
        rows = await connection.fetch("select nspname from pg_namespace where nspname !~ '^(pg_|inf|public)'")
    finally:
        await connection.close()
    assert [row["nspname"] for row in rows] == ["of_app"]


def test_a_file_or_the_environment_names_it(call: Call, shop: Path) -> None:
    files = {
        "graphile_worker.toml": 'app = "shop.worker:app"\n',
        "pyproject.toml": '[tool.graphile-worker]\napp = "shop/worker.py:app"\n',
    }
    for name, text in files.items():
        call("add", "send", '{"to": "a@example.com"}').check()
        (shop / name).write_text(text)
        assert "mail to a@example.com" in call("--once").check().out, name
        (shop / name).unlink()
    call("add", "send", '{"to": "b@example.com"}').check()
    worker = call("--once", GRAPHILE_WORKER_APP="shop.worker:app").check()
    assert "mail to b@example.com" in worker.out


FAILED_AT_ITS_START = (
    "graphile-worker: error: the lifespan of shop.worker:app failed at its start: "
    "ConnectionError: no mail server (at shop/worker.py, line "
)


async def test_a_lifespan_that_fails_at_its_start_stops_the_start(
    run: Run, shop: Path, database_url: str, jobs: Jobs
) -> None:
    await jobs.add("send", {"to": "a@example.com"})
    worker = run("--processes", 2, "--app", "shop.worker:app", DATABASE_URL=database_url, FAIL="start")
    assert worker.ended() == 1
    assert FAILED_AT_ITS_START in worker.output
    assert await jobs.count() == 1


@pytest.mark.usefixtures("shop")
def test_it_stops_the_start_of_a_worker_without_processes_too(call: Call) -> None:
    call("add", "send", '{"to": "a@example.com"}').check()
    for flags in ((), ("--once",)):
        worker = call(*flags, "--app", "shop.worker:app", FAIL="start")
        assert worker.status == 1
        assert FAILED_AT_ITS_START in worker.err
        assert len(call("list", "--json").json) == 1


async def test_a_lifespan_that_fails_at_its_end_is_reported(
    run: Run, shop: Path, database_url: str, jobs: Jobs
) -> None:
    await jobs.add("send", {"to": "a@example.com"})
    worker = run("--app", "shop.worker:app", DATABASE_URL=database_url, FAIL="end")
    worker.wait_for("observed send")
    worker.send(signal.SIGTERM)
    assert worker.ended() == 1
    worker.wait_for("ERROR [app] the lifespan of shop.worker:app failed at its end")
    worker.wait_for("graphile-worker: error: the lifespan of shop.worker:app failed at its end: OSError")
    assert await jobs.count() == 0


def test_a_lifespan_alone_serves_the_task_directory(call: Call, shop: Path) -> None:
    (shop / "tasks").mkdir()
    (shop / "tasks" / "hello.py").write_text(
        "from shop.worker import Mailer\n\n"
        "async def hello(payload, helpers):\n    await helpers.extension(Mailer).send('a@example.com')\n"
    )
    call("add", "hello").check()
    assert "mail to a@example.com" in call("--once", "--app", "shop.worker:lifespan").check().out


def test_options_of_the_app_are_defaults(
    call: Call, place: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATABASE_URL")
    (place / "options_app.py").write_text(
        "from graphile_worker import App\n"
        f"app = App(tasks={{'hello': print}}, concurrency=3, grace=4, connection_string={database_url!r})\n"
    )
    (place / "graphile_worker.toml").write_text("grace = 5\napp = 'options_app:app'\n")
    found = call("config", "--json", GRAPHILE_WORKER_POLL_INTERVAL="7").check().json
    assert found["concurrency"] == {"value": 3, "source": "app options_app:app"}
    assert found["grace"]["value"] == 5
    assert found["poll_interval"]["value"] == 7
    call("--once", "-j", 6, "--log-level", "debug").check()
    call("list").check()
    without = call("--app", "", "list")
    assert without.status == 1
    assert "no database was given" in without.err


def test_commands_know_the_tasks_and_recurring_jobs(call: Call, shop: Path) -> None:
    environment = {"GRAPHILE_WORKER_APP": "shop.worker:app"}
    assert "did you mean 'send'?" in call("add", "snd", **environment).check().err
    call("add", "send", "--strict", **environment).check()
    call("cleanup", "GC_TASK_IDENTIFIERS", **environment).check()
    call("cancel", "1", "2").check()
    kept = call("cleanup", "GC_TASK_IDENTIFIERS", "--app", "shop.worker:app").check()
    assert "Deleted 1 unused task name." in kept.out  # "snd"
    checked = call("crontab", "check", **environment).check()
    assert "app shop.worker:app: 1 recurring job, no problems." in checked.out
    following = call("crontab", "next", "-n", 1, "--app", "shop.worker:app").check()
    assert re.search(r"04:00 .* send +nightly", following.out)
    (shop / "crontab").write_text("0 5 * * * send ?id=nightly\n0 5 * * * sned ?id=other\n")
    wrong = call("crontab", "check", **environment)
    assert wrong.status == 1
    assert "the identifier 'nightly' is already used in item 0 of cron_items" in wrong.out
    assert "unknown task 'sned'" in wrong.out
    assert "2 problems" in wrong.out
    assert "entered" not in checked.out


def test_broken_code_is_reported_with_its_line(call: Call, place: Path) -> None:
    (place / "broken_app.py").write_text("import os\nos.no_such_function()\n")
    worker = call("--app", "broken_app:app")
    assert worker.status == 1
    assert "broken_app.py:2: cannot be imported: AttributeError" in worker.err
    assert "Traceback" not in worker.out + worker.err
