"""The page for those who come from Node names everything that Node has, and what it names here exists."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import pytest

import graphile_worker
from docs.blocks import ROOT
from graphile_worker import JobHelpers, Runner, WorkerUtils, run
from graphile_worker.cli.main import graphile_worker as command
from graphile_worker.config.settings import known_settings
from graphile_worker.hooks.events import EVENT_TYPES
from graphile_worker.spec import JobOptions

PAGE = ROOT / "docs" / "moving-from-node.md"

NODE: dict[str, set[str]] = {
    "Functions": {
        "run",
        "runOnce",
        "runTaskList",
        "runTaskListOnce",
        "runMigrations",
        "makeWorkerUtils",
        "addJobAdhoc",
        "quickAddJob",
        "parseCrontab",
        "parseCronItems",
        "parseCronItem",
        "getTasks",
        "getCronItems",
    },
    "Runner": {"stop", "kill", "addJob", "promise", "events"},
    "Worker utils": {
        "addJob",
        "addJobs",
        "completeJobs",
        "permanentlyFailJobs",
        "rescheduleJobs",
        "forceUnlockWorkers",
        "cleanup",
        "migrate",
        "withPgClient",
        "logger",
        "release",
    },
    "Job options": {"queueName", "runAt", "maxAttempts", "jobKey", "jobKeyMode", "priority", "flags"},
    "Helpers": {
        "job",
        "logger",
        "withPgClient",
        "query",
        "addJob",
        "addJobs",
        "getQueueName",
        "abortSignal",
        "abortPromise",
    },
    "Options": {
        "connectionString",
        "schema",
        "pollInterval",
        "concurrentJobs",
        "concurrency",
        "maxPoolSize",
        "preparedStatements",
        "noPreparedStatements",
        "crontabFile",
        "taskDirectory",
        "fileExtensions",
        "logger",
        "events",
        "minResetLockedInterval",
        "maxResetLockedInterval",
        "gracefulShutdownAbortTimeout",
        "useNodeTime",
        "getQueueNameBatchDelay",
        "localQueue.size",
        "localQueue.ttl",
        "localQueue.refetchDelay.durationMs",
        "localQueue.refetchDelay.threshold",
        "localQueue.refetchDelay.maxAbortThreshold",
        "completeJobBatchDelay",
        "failJobBatchDelay",
        "pgPool",
        "taskList",
        "crontab",
        "parsedCronItems",
        "forbiddenFlags",
        "workerId",
        "noHandleSignals",
        "autostart",
        "abortSignal",
        "preset",
        "plugins",
    },
    "Command line": {
        "-c",
        "--connection",
        "-s",
        "--schema",
        "--schema-only",
        "--once",
        "--crontab",
        "-j",
        "--jobs",
        "-m",
        "--max-pool-size",
        "--poll-interval",
        "--no-prepared-statements",
        "-C",
        "--config",
        "--cleanup",
        "--help",
        "--version",
    },
}
"""What the documentation and the code of Graphile Worker 0.18 for Node have."""


def _rows(section: str) -> list[tuple[str, str]]:
    """The first two cells of each row of a section's table."""
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    assert rows, section
    return [(cells[1], cells[2]) for cells in rows]


def _names(cell: str) -> set[str]:
    """`runner.stop()` and `addJob(identifier, …)` by their bare names."""
    texts = re.findall(r"`([^`]+)`", cell)
    return {re.sub(r"^(runner|helpers)\.", "", text).partition("(")[0] for text in texts}


@pytest.mark.parametrize("section", NODE)
def test_everything_that_node_has_is_in_the_table_and_nothing_else(section: str) -> None:
    named = set().union(*(_names(first) for first, _ in _rows(section)))
    assert named == NODE[section]


def _exists(section: str, name: str) -> bool:
    if section == "Functions":
        module, _, attribute = name.rpartition(".")
        home: Any = importlib.import_module(f"graphile_worker.{module}") if module else graphile_worker
        return callable(getattr(home, attribute, None))
    if section == "Options":
        return name in known_settings() or name in inspect.signature(run).parameters
    if section == "Job options":
        return name in JobOptions.__annotations__
    if section == "Command line":
        return any(name in parameter.opts for parameter in command.params)
    owner = {"Runner": Runner, "Worker utils": WorkerUtils, "Helpers": JobHelpers}[section]
    return hasattr(owner, name) or f"self.{name}" in inspect.getsource(owner)


@pytest.mark.parametrize("section", NODE)
def test_every_python_name_in_the_table_exists(section: str) -> None:
    for _, second in _rows(section):
        for name in _names(second):
            assert _exists(section, name), name


def test_the_events_it_names_exist() -> None:
    table = PAGE.read_text().partition("Node's hooks and middleware")[2].partition("\n## ")[0]
    named = {name for name in re.findall(r"`(\w+:[\w:]+)`", table) if not name.startswith("module")}
    assert named
    assert named <= set(EVENT_TYPES)
