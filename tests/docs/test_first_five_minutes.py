"""From an empty folder and an empty virtual environment to the first jobs, with nothing but the built wheel.

It does what a newcomer does, in the order of the getting-started page. Where the package index cannot be
reached it is skipped.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.command_line import clean_environment
from support.worker_process import WorkerProcess

pytestmark = pytest.mark.timeout(1200)  # it runs programs that may take minutes

ROOT = Path(__file__).parents[2]
ADD_FROM_SQL = "select graphile_worker.add_job('hello', json_build_object('name', 'psql'))"
ADD_FROM_PYTHON = """
import asyncio
from graphile_worker import make_worker_utils

async def main() -> None:
    async with make_worker_utils() as utils:
        await utils.add_job("hello", {"name": "Python"})

asyncio.run(main())
"""


class Newcomer:
    """An empty project folder, a virtual environment, and what is typed there."""

    def __init__(self, home: Path) -> None:
        self.project = home / "project"
        self.project.mkdir()
        self.environment = home / "environment"
        # Without pip inside, because ours installs into it and making a second one takes seconds.
        self._succeed(sys.executable, "-m", "venv", "--without-pip", self.environment)

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    @property
    def command(self) -> Path:
        return self.environment / "bin" / "graphile-worker"

    def install(self, *what: object) -> subprocess.CompletedProcess[str]:
        return self._run(*(sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet", *what))

    def type(self, *command: object, **environment: str) -> str:
        """What a command prints that must succeed."""
        return self._succeed(*command, **environment)

    def start(self, *command: object) -> WorkerProcess:
        return WorkerProcess(
            [str(part) for part in command], folder=self.project, environment=self._variables()
        )

    def psql(self) -> Path:
        """The psql that came with the embedded server."""
        script = "from graphile_worker.database.embedded import find_binaries; print(find_binaries().folder)"
        return Path(self._succeed(self.python, "-c", script).strip()) / "psql"

    def _succeed(self, *command: object, **environment: str) -> str:
        done = self._run(*command, **environment)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _run(self, *command: object, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(part) for part in command],
            cwd=self.project,
            env=self._variables(**environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )

    def _variables(self, **more: str) -> dict[str, str]:
        kept = clean_environment(**more)
        return {name: value for name, value in kept.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


@pytest.fixture
def newcomer() -> Iterator[Newcomer]:
    home = Path(tempfile.mkdtemp(prefix="graphile-worker-first-"))
    home.chmod(0o711)  # root's server runs as another user, who must get through
    try:
        yield Newcomer(home)
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it would be uploaded; building it needs the index already."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet"]
    probe = [
        *pip,
        "download",
        "--no-deps",
        "--retries",
        "0",
        "--timeout",
        "10",
        "-d",
        str(folder),
        "hatchling",
    ]
    reached = subprocess.run(probe, capture_output=True, text=True, timeout=600)
    if reached.returncode:
        pytest.skip(f"the package index cannot be reached: {reached.stderr.strip().splitlines()[-1]}")
    build = [*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("graphile_worker-*.whl")
    return wheel


def test_the_first_five_minutes(newcomer: Newcomer, wheel: Path) -> None:
    installed = newcomer.install(f"{wheel}[embedded]")
    assert installed.returncode == 0, installed.stderr

    said = newcomer.type(newcomer.command, "init")
    assert "graphile-worker dev" in said
    assert sorted(path.name for path in newcomer.project.iterdir()) == [".gitignore", "crontab", "tasks"]

    dev = newcomer.start(newcomer.command, "dev")
    try:
        dev.ready()
        url = _connection_string(dev.output)

        newcomer.type(newcomer.psql(), url, "--no-psqlrc", "-c", ADD_FROM_SQL)
        dev.wait_for("Hello, psql!")
        newcomer.type(newcomer.python, "-c", ADD_FROM_PYTHON, DATABASE_URL=url)
        dev.wait_for("Hello, Python!")

        jobs = json.loads(newcomer.type(newcomer.command, "list", "--json", DATABASE_URL=url))
        assert jobs == []
        dev.send(signal.SIGINT)
        assert dev.ended() in (0, 130), dev.output
    finally:
        dev.close()
    assert not _server_processes(newcomer.project), dev.output


def test_the_wheel_holds_the_package_its_command_and_its_plugin_for_pytest(wheel: Path) -> None:
    source = ROOT / "src"
    ours = {
        path.relative_to(source).as_posix()
        for path in (source / "graphile_worker").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as packed:
        names = {name for name in packed.namelist() if ".dist-info/" not in name}
        (entry_points,) = (name for name in packed.namelist() if name.endswith("entry_points.txt"))
        groups = configparser.ConfigParser()
        groups.read_string(packed.read(entry_points).decode())
    assert names == ours
    assert "graphile_worker/py.typed" in names
    assert dict(groups["console_scripts"]) == {"graphile-worker": "graphile_worker.cli.main:main"}
    assert dict(groups["pytest11"]) == {"graphile_worker": "graphile_worker.testing.pytest_plugin"}


def _connection_string(output: str) -> str:
    """What `dev` says is to be typed for other programs."""
    found = re.search(r"export (DATABASE_URL=.+)$", output, re.MULTILINE)
    assert found is not None, output
    (assignment,) = shlex.split(found[1])
    return assignment.partition("=")[2]


def _server_processes(folder: Path) -> list[str]:
    """Processes that still work in the project's folder."""
    left = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if Path(os.readlink(process / "cwd")).is_relative_to(folder):
                left.append((process / "cmdline").read_text())
        except OSError:
            continue
    return left
