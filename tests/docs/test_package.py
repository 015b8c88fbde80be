"""The wheel and the source archive, installed into empty environments, and what they hold.

On the Python of the tests; PACKAGE_PYTHONS="3.12 3.13" or `make package` names others, which are skipped if
the machine does not have them. Where the package index cannot be reached, everything is skipped.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import signal
import sys
import tarfile
import urllib.request
import zipfile
from pathlib import Path

import pytest
from scripts.integrations.environments import working_python

from docs.blocks import ROOT
from graphile_worker import __version__
from support.newcomer import Newcomer, newcomer_with

pytestmark = pytest.mark.timeout(1200)  # it runs programs that may take minutes

PYTHONS = os.environ.get("PACKAGE_PYTHONS", "").split() or [f"{sys.version_info[0]}.{sys.version_info[1]}"]
IMPORT_EVERYTHING = """
from importlib import import_module

for name in ("", ".results", ".options", ".hooks", ".logging", ".testing", ".executors"):
    module = import_module(f"graphile_worker{name}")
    for each in module.__all__:
        getattr(module, each)
"""


@pytest.fixture(params=PYTHONS)
def python(request: pytest.FixtureRequest) -> str:
    if (found := working_python(f"python{request.param}")) is None:
        pytest.skip(f"there is no Python {request.param}")
    return found


def test_the_wheel_works_in_an_empty_environment(python: str, wheel: Path) -> None:
    with newcomer_with(python) as newcomer:
        installed = newcomer.install(wheel)
        assert installed.returncode == 0, installed.stderr
        assert newcomer.type(newcomer.command, "--version") == f"{__version__}\n"
        newcomer.type(newcomer.python, "-c", IMPORT_EVERYTHING)


def test_what_the_source_archive_holds_is_installed_as_the_readme_says(python: str, sdist: Path) -> None:
    with newcomer_with(python) as newcomer:
        with tarfile.open(sdist) as packed:
            packed.extractall(newcomer.project, filter="data")
        (checkout,) = newcomer.project.iterdir()
        (what,) = re.findall(r'^pip install "\.(.+)"$', (checkout / "README.md").read_text(), re.MULTILINE)
        installed = newcomer.install(f"{checkout}{what}")
        assert installed.returncode == 0, installed.stderr
        assert newcomer.type(newcomer.command, "--version") == f"{__version__}\n"
        _see_the_demo(newcomer)


def _see_the_demo(newcomer: Newcomer) -> None:
    """It needs all of a server, workers and the dashboard with its templates."""
    demo = newcomer.start(newcomer.command, "demo", "--json", "--no-browser")
    try:
        demo.wait_for("dashboard")
        address = json.loads(demo.output)["dashboard"]
        for path in ("", "api/v1/workers"):
            with urllib.request.urlopen(f"{address}{path}", timeout=60) as answer:
                assert answer.status == 200
        demo.send(signal.SIGINT)
        assert demo.ended() == 130, demo.output
    finally:
        demo.close()


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


def test_the_source_archive_holds_the_whole_repository(sdist: Path) -> None:
    with tarfile.open(sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert sdist.name == f"graphile_worker-{__version__}.tar.gz"
    for folder in ("src", "tests", "docs", "examples", "scripts"):
        ours = {
            path.relative_to(ROOT).as_posix()
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and not {"__pycache__", "node_modules"} & set(path.parts)
        }
        assert ours <= names, folder
    for name in ("pyproject.toml", "Makefile", "Dockerfile", ".dockerignore", "CHANGELOG.md", "SECURITY.md"):
        assert name in names
