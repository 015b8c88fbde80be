"""Compiled Python files for a test run, also where the environment says that none are to be written.

Without them each test process compiles every test file again, and each program that a test starts compiles
the package again. They are written for the package and the test files only: programs that tests write change
within a second, and Python would not notice that by the time of the file.

The package has a plugin for pytest, so pytest would rewrite its assertions, too, and compile all of it
once more in each process. Importing this module prevents that; it must come before the rest of the package.
"""

from __future__ import annotations

import compileall
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import graphile_worker


def _leave_the_package_as_written() -> None:
    """pytest has no option for this; where its internals differ, runs only begin more slowly."""
    for finder in sys.meta_path:
        marked: Any = getattr(finder, "_must_rewrite", set())
        marked.discard(graphile_worker.__name__)
        getattr(finder, "_marked_for_rewrite_cache", {}).clear()


_leave_the_package_as_written()


class CompiledFiles:
    """A pytest plugin that lets Python write compiled files until the tests are collected."""

    def __init__(self) -> None:
        self._before = sys.dont_write_bytecode
        sys.dont_write_bytecode = False
        if "PYTEST_XDIST_WORKER" not in os.environ:
            # Best effort: it is only slower without, for example in a folder that may not be written to.
            compileall.compile_dir(Path(graphile_worker.__file__).parent, quiet=2)

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> object:
        try:
            return (yield)
        finally:
            sys.dont_write_bytecode = self._before
