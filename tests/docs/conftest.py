"""The package as it would be uploaded, and somebody to install it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.blocks import ROOT
from support.newcomer import Newcomer, newcomer_with


@pytest.fixture
def newcomer() -> Iterator[Newcomer]:
    with newcomer_with() as newcomer:
        yield newcomer


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the wheel and the source archive. Building them needs the package index."""
    backend, folder = tmp_path_factory.mktemp("backend"), tmp_path_factory.mktemp("archives")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--retries", "0", "--timeout", "10"]
    fetched = subprocess.run(
        [*pip, "--target", str(backend), "hatchling"], capture_output=True, text=True, timeout=600
    )
    if fetched.returncode:
        pytest.skip(f"the package index cannot be reached: {fetched.stderr.strip().splitlines()[-1]}")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(backend)}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def wheel(archives: Path) -> Path:
    (wheel,) = archives.glob("graphile_worker-*.whl")
    return wheel


@pytest.fixture(scope="session")
def sdist(archives: Path) -> Path:
    (sdist,) = archives.glob("graphile_worker-*.tar.gz")
    return sdist
