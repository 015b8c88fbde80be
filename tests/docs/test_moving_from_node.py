"""The page about moving from Node covers everything that Node has, and its Python names exist."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import graphile_worker
from docs.blocks import ROOT, blocks_of
from graphile_worker import JobHelpers, Runner, WorkerUtils, make_worker_utils, run_once
from graphile_worker.cli.main import graphile_worker as command
from graphile_worker.config.settings import known_settings
from graphile_worker.hooks.events import EVENT_TYPES
from graphile_worker.runner.arguments import RunArguments
from graphile_worker.values.spec import JobOptions

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
        "WorkerPreset",
        "Logger",
        "consoleLogFactory",
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
    "Hooks and middleware": {
        "hooks.init",
        "hooks.prebootstrap",
        "hooks.postbootstrap",
        "hooks.premigrate",
        "hooks.postmigrate",
        "hooks.migrationError",
        "hooks.loadTaskFromFiles",
        "hooks.startWorker",
        "hooks.stopWorker",
        "middleware.init",
        "middleware.bootstrap",
        "middleware.migrate",
        "middleware.poolGracefulShutdown",
        "middleware.poolForcefulShutdown",
        "middleware.poolWorkerPrematureExit",
    },
    "Environment": {
        "DATABASE_URL",
        "PGDATABASE",
        "GRAPHILE_WORKER_SCHEMA",
        "GRAPHILE_LOGGER_DEBUG",
        "GRAPHILE_WORKER_DEBUG",
        "NO_LOG_SUCCESS",
        "GRAPHILE_ENABLE_DANGEROUS_LOGS",
    },
}
"""The public names in the documentation and the code of Graphile Worker 0.18 for Node."""
NOT_FOR_USERS = {"default", "$$isParsed", "LocalQueueModes", "isValidTask"}
"""Internal names that happen to be exported."""
WORDS = ("Hooks and middleware", "Environment")
"""Sections whose second column is prose."""


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
        return name in known_settings() or name in RunArguments.__annotations__
    if section == "Job options":
        return name in JobOptions.__annotations__
    if section == "Command line":
        return any(name in parameter.opts for parameter in command.params)
    owner = {"Runner": Runner, "Worker utils": WorkerUtils, "Helpers": JobHelpers}[section]
    return hasattr(owner, name) or f"self.{name}" in inspect.getsource(owner)


@pytest.mark.interop
def test_no_function_and_no_flag_of_the_package_itself_was_forgotten() -> None:
    from interop.node_packages import provide

    node = provide()
    script = "import('graphile-worker').then((m) => console.log(Object.keys(m).join(' ')))"
    exported = node_says(node, "--input-type=module", "-e", script).split()
    assert set(exported) - NOT_FOR_USERS <= NODE["Functions"]
    flags = re.findall(r"--[a-z][a-z-]+", node_says(node, str(node.command_line()), "--help"))
    assert {"--once", "--cleanup"} <= set(flags) <= NODE["Command line"]


def node_says(node: Any, *arguments: str) -> str:
    """The output of Node, started in the folder of its packages."""
    folder = next(path.parent for path in node.command_line().parents if path.name == "node_modules")
    done = subprocess.run(
        [str(node.binary), *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


@pytest.mark.parametrize("section", [name for name in NODE if name not in WORDS])
def test_every_python_name_in_the_table_exists(section: str) -> None:
    for _, second in _rows(section):
        for name in _names(second):
            assert _exists(section, name), name


def test_the_events_it_names_exist() -> None:
    table = PAGE.read_text().partition("\n## Events")[2].partition("\n## Environment")[0]
    named = {name for name in re.findall(r"`(\w+:[\w:]+)`", table) if not name.startswith("module")}
    assert named
    assert named <= set(EVENT_TYPES)


async def test_the_task_that_was_moved_accepts_what_node_adds(
    connection: Any, database_url: str, tmp_path: Path
) -> None:
    (block,) = (each for each in blocks_of(PAGE) if each.path)
    assert block.path is not None
    file = tmp_path / block.path
    file.parent.mkdir()
    file.write_text(block.text)
    await connection.execute(
        "create table customers (id bigint, email text, seen_at timestamptz);"
        "insert into customers values (42, 'ada@example.com')"
    )
    async with make_worker_utils(connection_string=database_url) as utils:
        for customer in ("42", 42, 43):
            payload = {"customerId": customer, "since": "2030-01-31T12:00:00.000Z"}
            await utils.add_job("customer_seen", payload)
        await run_once(connection_string=database_url, task_directory=str(file.parent))
        (mail,) = await utils.jobs.list()
    assert (mail.task_identifier, mail.key, mail.revision) == ("send_email", "seen:42", 1)
    assert await connection.fetchval("select seen_at::text from customers") == "2030-01-31 12:00:00+00"
