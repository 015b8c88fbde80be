"""The order in which the processes of a test run take the files: the longest first, so that all end together.

pytest-xdist takes the files with the most tests first. Files with a few long tests would then come last, and
one process would work for minutes while the others have nothing left to do.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

LONG_FILES = (
    "tests/docs/test_code_blocks.py",
    "tests/queries/test_plans.py",
    "tests/typing/test_typing.py",
    "tests/contrib/test_alembic.py",
    "tests/acceptance/test_blocked_loop.py",
    "tests/chaos/test_short.py",
    "tests/test_limits.py",
    "tests/django_backend/test_suite.py",
    "tests/examples/test_shop.py",
    "tests/faults/test_silent_network.py",
    "tests/held/test_admin_functions.py",
    "tests/worker/test_lost_batches.py",
    "tests/recovery/test_poison.py",
    "tests/worker/test_holds.py",
    "tests/worker/test_holds_stopping.py",
    "tests/worker/test_holds_refused.py",
    "tests/worker/test_released_jobs.py",
    "tests/recovery/test_held.py",
    "tests/recovery/test_hold_guard.py",
    "tests/interop/test_held_batches.py",
    "tests/testing/test_pytest_plugin.py",
    "tests/blocking/test_same_as_the_other.py",
    "tests/contract/test_task_options.py",
    "tests/admin/test_hostile_requests.py",
    "tests/queries/test_bulk_plans.py",
    "tests/recovery/test_killed.py",
    "tests/cli/test_secrets.py",
    "tests/cancel/test_races.py",
    "tests/pauses/test_queues.py",
    "tests/contract/test_once.py",
    "tests/embedded/test_cluster.py",
    "tests/cli/test_doctor.py",
    "tests/acceptance/test_first_five_minutes.py",
    "tests/docs/test_site.py",
    "tests/cli/test_dev.py",
    "tests/recovery/test_alive.py",
    "tests/queries/test_hostile.py",
    "tests/cli/test_newcomer_errors.py",
    "tests/sql_functions/test_lost_adds_race.py",
    "tests/worker/test_unwritable_outcomes.py",
    "tests/history/test_waiting.py",
    "tests/history/test_results.py",
    "tests/worker/test_unwritten_memory.py",
    "tests/admin/test_plans.py",
    "tests/worker/test_run_order.py",
    "tests/cli/test_malformed_urls.py",
    "tests/service/test_reload.py",
    "tests/service/test_serve.py",
    "tests/embedded/test_sharing.py",
    "tests/admin/test_hub.py",
    "tests/cli/test_bench.py",
    "tests/cli/test_dev_database.py",
    "tests/client/test_add_jobs.py",
    "tests/cron/test_many_schedulers.py",
    "tests/contract/test_around_run.py",
    "tests/app/test_command.py",
    "tests/cli/test_watch.py",
    "tests/acceptance/test_stopping.py",
    "tests/foreign/test_transactions.py",
    "tests/testing/test_jobs.py",
    "tests/faults/test_server_away.py",
    "tests/pauses/test_processes.py",
    "tests/cli/test_bulk_commands.py",
    "tests/embedded/test_account.py",
    "tests/figures/test_recording.py",
    "tests/contract/test_hooks.py",
    "tests/worker/test_time_limits.py",
    "tests/acceptance/test_exits.py",
    "tests/contract/test_results.py",
    "tests/contract/test_flags.py",
    "tests/client/test_bulk_changes.py",
    "tests/executors/test_processes.py",
    "tests/contract/test_continuous.py",
    "tests/widths/test_wide_queues.py",
    "tests/cli/test_run.py",
    "tests/contrib/test_servers.py",
    "tests/acceptance/test_listener.py",
    "tests/acceptance/test_time_limits.py",
    "tests/interop/test_cancelling.py",
    "tests/cli/test_results.py",
    "tests/worker/test_fetch_above_watermarks.py",
    "tests/interop/test_workers_together.py",
    "tests/embedded/test_fixtures.py",
    "tests/interop/test_pauses.py",
    "tests/cli/test_jobs.py",
    "tests/admin/test_failures.py",
    "tests/acceptance/test_signals.py",
    "tests/admin/test_operations.py",
    "tests/django_backend/test_command.py",
    "tests/contract/test_queues.py",
    "tests/contract/test_batch_jobs.py",
    "tests/queries/test_history_plans.py",
    "tests/pauses/test_tasks.py",
)
"""The files that take longest, the longest first, as measured; the others follow by their number of tests."""

TEST_BY_TEST = {"tests/docs/test_code_blocks.py"}
"""Files that would take longer than the rest of the run; their tests share nothing and may run anywhere."""


class LongestFirst:
    """A pytest plugin for runs with `--dist=loadfile`."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        if config.getoption("dist") != "loadfile":
            return None
        config.option.loadscopereorder = False  # the order of the collection is kept
        scheduling: Any = LoadFileScheduling(config, log)
        scheduling._split_scope = _unit
        return scheduling

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        counts: dict[str, int] = {}
        for item in items:
            counts[_file(item.nodeid)] = counts.get(_file(item.nodeid), 0) + 1
        places = {name: place for place, name in enumerate(LONG_FILES)}
        last = len(places)

        def place(item: pytest.Item) -> tuple[int, int]:
            file = _file(item.nodeid)
            return places.get(file, last), -counts[file]

        items.sort(key=place)  # stable: files and tests otherwise stay as they are


def _unit(nodeid: str) -> str:
    """What runs in one process: a file, or a single test."""
    return nodeid if _file(nodeid) in TEST_BY_TEST else _file(nodeid)


def _file(nodeid: str) -> str:
    return nodeid.split("::", 1)[0]
