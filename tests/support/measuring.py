"""Where `make test` measures coverage, which makes code in the test's own process up to four times slower."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

CONFIGURATION = Path(__file__).parents[2] / "pyproject.toml"

NOT_MEASURED = (
    "tests/admin/test_hostile_requests.py",
    "tests/admin/test_plans.py",
    "tests/chaos/",
    "tests/cli/test_malformed_urls.py",
    "tests/docs/",
    "tests/examples/",
    "tests/fuzz/",
    "tests/interop/test_held_batches.py",
    "tests/typing/",
    "tests/worker/test_run_order.py",
)
"""Tests that repeat code many times or run it in other processes; other tests measure nearly all of it."""


class Measuring:
    """A pytest plugin: pytest-cov pauses during the tests above."""

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        is_measuring = config.pluginmanager.hasplugin("_cov")
        for item in items:
            if is_measuring and item.nodeid.startswith(NOT_MEASURED):
                item.add_marker(pytest.mark.no_cover)


def measured() -> dict[str, str]:
    """Environment variables that make a Python program measure itself, if this test run does.

    Only for code that runs in no other process.
    """
    library = sys.modules.get("coverage")
    running = library.Coverage.current() if library else None
    if running is None:
        return {}
    data_file = os.path.abspath(str(running.get_option("run:data_file")))
    return {"COVERAGE_PROCESS_START": str(CONFIGURATION), "COVERAGE_FILE": data_file}
