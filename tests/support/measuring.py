"""Where `make test` measures coverage, which makes code in the test's own process up to four times slower."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
    "tests/queries/test_bulk_plans.py",
    "tests/queries/test_failure_plans.py",
    "tests/queries/test_history_plans.py",
    "tests/queries/test_plans.py",
    "tests/sql_functions/",
    "tests/typing/",
    "tests/worker/test_holds_in_lanes.py",
    "tests/worker/test_holds_off.py",
    "tests/worker/test_holds_on_recovery.py",
    "tests/worker/test_holds_rights.py",
    "tests/worker/test_run_order.py",
)
"""Tests that repeat code many times or run it in other processes; other tests measure nearly all of it."""

OTHER_MODES = [mode for mode in MODES if mode != "default"]
"""Of a test for each mode of a worker, one case is measured; what the others do is in tests of its own."""


class Measuring:
    """A pytest plugin: pytest-cov pauses during the tests above, and while their fixtures begin and end.

    In a process of pytest-xdist it starts twice, and what the first one measures is never saved. That one
    would go on during every pause, so it is ended before the second begins.
    """

    def __init__(self) -> None:
        first = _running() if "PYTEST_XDIST_WORKER" in os.environ else None
        if first is not None:
            first.stop()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> Any:
        """Every process imports the same; the first one measures it."""
        is_first = os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0"
        with _paused(None if is_first else _controller(session.config)):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        is_measured = not (item.nodeid.startswith(NOT_MEASURED) or _is_another_mode(item))
        with _paused(None if is_measured else _controller(item.config)):
            return (yield)


def _controller(config: pytest.Config) -> Any:
    """What pytest-cov measures with; None if it does not."""
    return getattr(config.pluginmanager.getplugin("_cov"), "cov_controller", None)


@contextmanager
def _paused(controller: Any) -> Iterator[None]:
    if controller is not None:
        controller.pause()
    try:
        yield
    finally:
        if controller is not None:
            controller.resume()


def _is_another_mode(item: pytest.Item) -> bool:
    case = getattr(item, "callspec", None)  # of parametrized tests
    return case is not None and case.params.get("mode") in OTHER_MODES


def measured() -> dict[str, str]:
    """Environment variables that make a Python program measure itself, if this test run does.

    Only for code that runs in no other process.
    """
    running = _running()
    if running is None:
        return {}
    data_file = os.path.abspath(str(running.get_option("run:data_file")))
    return {"COVERAGE_PROCESS_START": str(CONFIGURATION), "COVERAGE_FILE": data_file}


def _running() -> Any:
    """What measures this process; None if nothing does."""
    library = sys.modules.get("coverage")
    return library.Coverage.current() if library else None
