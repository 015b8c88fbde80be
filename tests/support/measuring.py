"""Where `make test` measures coverage, which makes code in the test's own process up to four times slower."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from support.working import MODES

CONFIGURATION = Path(__file__).parents[2] / "pyproject.toml"

NOT_MEASURED = (
    "tests/admin/test_hostile_requests.py",
    "tests/admin/test_plans.py",
    "tests/chaos/",
    "tests/cli/test_malformed_urls.py",
    "tests/client/test_add_jobs.py::test_a_hundred_thousand_specs_",
    "tests/client/test_add_jobs.py::test_jobs_that_are_not_asked_back_take_no_memory",
    "tests/cron/test_preview.py::test_what_never_runs_ends_the_search",
    "tests/db/test_dsn.py::test_a_password_is_never_shown_whatever_is_around_it",
    "tests/docs/",
    "tests/examples/",
    "tests/foreign/test_injection.py",
    "tests/fuzz/",
    "tests/held/test_admin_functions.py",
    "tests/interop/test_held_batches.py",
    "tests/typing/",
    "tests/worker/test_holds_in_lanes.py",
    "tests/worker/test_holds_on_recovery.py",
    "tests/worker/test_holds_rights.py",
    "tests/worker/test_run_order.py",
)
"""Tests that repeat code many times or run it in other processes; other tests measure nearly all of it."""

OTHER_MODES = [mode for mode in MODES if mode != "default"]
"""Of a test for each mode of a worker, one case is measured; what the others do is in tests of its own."""


class Measuring:
    """A pytest plugin: pytest-cov pauses during the tests above."""

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        is_measuring = config.pluginmanager.hasplugin("_cov")
        for item in items:
            if is_measuring and (item.nodeid.startswith(NOT_MEASURED) or _is_another_mode(item)):
                item.add_marker(pytest.mark.no_cover)


def _is_another_mode(item: pytest.Item) -> bool:
    case = getattr(item, "callspec", None)  # of parametrized tests
    return case is not None and case.params.get("mode") in OTHER_MODES


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
