"""Compiled Python files for a test run, also where the environment says that none are to be written.

Without them each test process compiles every test file again, and each program that a test starts compiles
the package again. They are written for the package and the test files only: programs that tests write change
within a second, and Python would not notice that by the time of the file.

With several test processes they are written before these start, by processes of their own: the assertions of
test files are rewritten in Python, which takes three times as long while coverage is measured.

The package has a plugin for pytest, so pytest would rewrite its assertions, too, and compile all of it
once more in each process. Importing this module prevents that; it must come before the rest of the package.
"""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import graphile_worker

PACKAGE = Path(graphile_worker.__file__).parent
COMPILER = Path(__file__).with_name("compiler.py")


def _leave_the_package_as_written() -> None:
    """pytest has no option for this; where its internals differ, runs only begin more slowly."""
    for finder in sys.meta_path:
        marked: Any = getattr(finder, "_must_rewrite", set())
        marked.discard(graphile_worker.__name__)
        getattr(finder, "_marked_for_rewrite_cache", {}).clear()


_leave_the_package_as_written()


def _named_paths(config: pytest.Config) -> list[Path]:
    """The files and folders whose tests are wanted."""
    return [config.invocation_params.dir / name.split("::", 1)[0] for name in config.args]


def _compile_together(*paths: Path) -> None:
    """Compile what is not compiled yet, with all cores."""
    cores = os.cpu_count() or 1
    command = [sys.executable, "-P", str(COMPILER)]
    processes = [
        subprocess.Popen([*command, f"{part}/{cores}", *map(str, paths)], stderr=subprocess.DEVNULL)
        for part in range(cores)
    ]
    for process in processes:
        process.wait()


class CompiledFiles:
    """A pytest plugin that lets Python write compiled files until the tests are collected."""

    def __init__(self, config: pytest.Config) -> None:
        self._before = sys.dont_write_bytecode
        sys.dont_write_bytecode = False
        # Best effort: it is only slower without, for example in a folder that may not be written to.
        if config.getoption("numprocesses", None):
            _compile_together(PACKAGE, *_named_paths(config))
        elif "PYTEST_XDIST_WORKER" not in os.environ:
            compileall.compile_dir(PACKAGE, quiet=2)

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> object:
        try:
            return (yield)
        finally:
            sys.dont_write_bytecode = self._before
