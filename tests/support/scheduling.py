"""The order in which the processes of a test run take the files: the longest first, so that all end together.

pytest-xdist takes the files with the most tests first. Files with a few long tests would then come last, and
one process would work for minutes while the others have nothing left to do.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

LONG_FILES = (
    "tests/examples/test_shop.py",
    "tests/typing/test_typing.py",
    "tests/docs/test_code_blocks.py",
    "tests/chaos/test_short.py",
    "tests/docs/test_site.py",
    "tests/admin/test_plans.py",
    "tests/test_limits.py",
    "tests/interop/test_pauses.py",
    "tests/sql_functions/test_lost_adds_race.py",
    "tests/recovery/test_killed.py",
    "tests/recovery/test_alive.py",
    "tests/acceptance/test_blocked_loop.py",
    "tests/interop/test_workers_together.py",
    "tests/interop/test_installing_together.py",
    "tests/docs/test_reference.py",
    "tests/embedded/test_fixtures.py",
    "tests/interop/test_crontab_together.py",
    "tests/faults/test_failover.py",
    "tests/faults/test_silent_network.py",
    "tests/fuzz/test_sql_adding.py",
    "tests/fuzz/test_sql_managing.py",
    "tests/fuzz/test_task_files.py",
    "tests/fuzz/test_crontab.py",
    "tests/cli/test_dev.py",
    "tests/testing/test_pytest_plugin.py",
    "tests/cli/test_secrets.py",
    "tests/embedded/test_sharing.py",
    "tests/cli/test_watch.py",
    "tests/embedded/test_cluster.py",
    "tests/cli/test_run.py",
    "tests/queries/test_hostile.py",
    "tests/contrib/test_alembic.py",
    "tests/cli/test_results.py",
    "tests/cli/test_dev_database.py",
    "tests/service/test_reload.py",
    "tests/cli/test_newcomer_errors.py",
    "tests/interop/test_node_on_our_schema.py",
    "tests/client/test_add_jobs.py",
    "tests/app/test_command.py",
    "tests/endings/test_rules.py",
    "tests/cli/test_doctor.py",
    "tests/history/test_waiting.py",
    "tests/pauses/test_queues.py",
    "tests/cli/test_bench.py",
    "tests/history/test_results.py",
    "tests/cancel/test_races.py",
    "tests/worker/test_unwritten_memory.py",
    "tests/acceptance/test_signals.py",
    "tests/figures/test_recording.py",
    "tests/widths/test_wide_queues.py",
    "tests/cli/test_logs.py",
    "tests/acceptance/test_exits.py",
    "tests/worker/test_unwritable_outcomes.py",
    "tests/queries/test_plans.py",
    "tests/contract/test_results.py",
    "tests/service/test_serve.py",
    "tests/contract/test_hooks.py",
    "tests/client/test_bulk_changes.py",
    "tests/embedded/test_account.py",
    "tests/cli/test_health.py",
    "tests/contract/test_batch_jobs.py",
    "tests/acceptance/test_stopping.py",
    "tests/contract/test_failures.py",
    "tests/cancel/test_worker.py",
    "tests/cli/test_bulk_commands.py",
    "tests/observability/test_runs.py",
    "tests/contract/test_task_options.py",
    "tests/contract/test_continuous.py",
    "tests/contract/test_flags.py",
    "tests/testing/test_jobs.py",
    "tests/recovery/test_sweep.py",
    "tests/blocking/test_same_as_the_other.py",
    "tests/history/test_retention.py",
    "tests/worker/test_time_limits.py",
    "tests/contract/test_once.py",
    "tests/queries/test_bulk_plans.py",
    "tests/contract/test_queues.py",
    "tests/foreign/test_traps.py",
    "tests/acceptance/test_grace.py",
    "tests/pauses/test_tasks.py",
    "tests/queries/test_figure_plans.py",
    "tests/sql_functions/test_lost_adds.py",
    "tests/cron/test_matcher.py",
    "tests/worker/test_outcome_events.py",
    "tests/worker/test_limits.py",
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
