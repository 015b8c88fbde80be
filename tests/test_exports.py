"""The public names of the packages that import them on first use."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from graphile_worker import contrib, errors

PUBLIC = {
    "graphile_worker": """
        AbortSignal App CronItem Depends Extensions FailedJob GiveUp GraphileWorkerError Job JobHandle
        JobHelpers JobSpec Lane Limit Retry RetryIn Runner Snooze SyncHelpers SyncJobHandle
        SyncWorkerUtils Task Unique WorkerUtils __version__ add_job_adhoc get_current_helpers
        get_current_job make_sync_worker_utils make_worker_utils parse_cron_items parse_crontab run
        run_migrations run_once serve task
    """,
    "graphile_worker.options": """
        BulkOptions CleanupTask Clock CronItemOptions FlagSource HistoryFilter HistoryOptions JobFilter
        JobKeyMode JobOptions JobOrder Lifespan LocalQueueOptions NodeOptions RecoveryOptions
        RefetchDelayOptions TaskList TaskOptions WorkerOptions
    """,
    "graphile_worker.results": """
        AttemptError AwaitableContext BacklogSample BlockedLoop BulkReport CancelReport CleanupReport
        ConcurrencyChange Deploy ErrorGroup ExecutorPlace FinishedJob FinishedState FlagDescription
        JobCounts JobDetails JobRecord JobReference JobStack JobState JobStatus LaneDescription
        LimitSummary Load MigrationReport
        ParsedCronItem ParsedCronOptions Pause Progress QueueSummary RecoveredWorker RegisteredSchedule
        RunningJob Schedule ScheduleRun Statistics StatisticsGroup StatisticsList SweepReport
        SyncConnection SyncJobReference TaskStatistics WorkerList WorkerSummary
    """,
    "graphile_worker.hooks": """
        AddWatcher AfterRun AroundRun BeforeAdd BeforeRun CallNext Cancelled Completed Events Expired
        FailJob Failed Hooks Interrupted KeptPart LeaveLocked LivePool OnRecovery Outcome Plugin
        PluginWithLifecycle Redactor RunWatcher SkipJob Snoozed WorkerContext
    """,
    "graphile_worker.logging": "JobContextFilter JsonFormatter TextFormatter configure_logging",
    "graphile_worker.executors": "ProcessExecutor RemoteHelpers TaskCall TaskExecutor TaskStack",
    "graphile_worker.testing": """
        AddedJobs DatabaseServer EventRecorder FakeClock JobRun JobsRun RunJobs UnknownTask make_job
        scratch_server
    """,
}
"""The names of the public modules that import them on first use."""
ERRORS = """
    AppLoadError BatchFailureError ConfigError ConnectionConfigError ConnectionFailedError CrontabError
    CrontabProblem DatabaseError EmbeddedPostgresError ExecutableFailedError ExtensionMissingError
    GraphileWorkerError InvalidArgumentError InvalidPayloadError JobBusyError JobCancelledError JobError
    JobFailedError JobGoneError JobInterruptedError JobNotAddedError JobRefusedError JobTimeoutError
    LeakedTasksError LifespanError MigrationError NoDatabaseError PayloadError PermissionDeniedError
    PluginError ProcessDiedError RemoteTaskError ResultError SchemaMissingError SchemaTooNewError
    SchemaTooOldError StackUnavailableError TaskLoadError UnknownTaskError WorkerNotFoundError
    WorkerRequestError WorkerStoppedError WorkerUnhealthyError
"""
DJANGO = "aadd_job aadd_jobs add_job add_jobs admin_authorize task utils"
CONTRIB = {
    "alembic": "IncludeName Operations exclude_schema install uninstall",
    "dask": "DaskExecutor",
    "dishka": "FromDishka GraphileWorkerProvider inject setup_dishka",
    "fastapi": """
        GraphileWorkerApp Jobs SyncJobs get_sync_worker_utils get_worker_utils jobs_in router
    """,
    "flask": "AppContext GraphileWorker current_jobs",
    "http": "HttpPlugin",
    "litestar": "GraphileWorkerPlugin",
    "loguru": "InterceptHandler LoguruPlugin intercept",
    "opentelemetry": "OpenTelemetryPlugin Relation context_as_text context_from_text context_of inject",
    "prometheus": "DatabaseMetrics PrometheusPlugin",
    "pydantic": "LocalQueueSettings RefetchDelaySettings WorkerSettings",
    "quart": "GraphileWorker current_jobs",
    "ray": "RayExecutor",
    "sentry": "SentryPlugin",
    "starlette": "GraphileWorkerApp",
    "structlog": "StructlogPlugin processor",
}
OTHERS = {"django", "log_fields", "web_settings"}
"""Modules of `contrib` that have no list: Django's, which is imported on first use, and private ones."""
PACKAGES = [name for name in PUBLIC if name != "graphile_worker.hooks"]  # which most of the package needs
FIXED = """
    task run run_once run_migrations make_worker_utils add_job_adhoc JobHelpers JobSpec Job parse_crontab
    parse_cron_items CronItem Snooze RetryIn GiveUp Retry Limit Lane Unique SyncWorkerUtils
    make_sync_worker_utils Runner WorkerUtils
"""
"""Names that have to stay at the top."""


def _imported_for_type_checkers(package: str) -> dict[str, str]:
    """Names and modules of the imports below TYPE_CHECKING."""
    module = importlib.import_module(package)
    base = module.__package__
    source = Path(module.__file__ or "").read_text()
    block = next(node for node in ast.parse(source).body if isinstance(node, ast.If))
    found = {}
    for statement in block.body:
        assert isinstance(statement, ast.ImportFrom)
        for alias in statement.names:
            assert alias.asname == alias.name, "type checkers export `X as X` only"
            found[alias.name] = f"{base}.{statement.module}"
    return found


@pytest.mark.parametrize("module", PUBLIC)
def test_the_public_names_are_these(module: str) -> None:
    assert sorted(importlib.import_module(module).__all__) == PUBLIC[module].split()


def test_the_public_errors_are_these() -> None:
    assert sorted(errors.__all__) == ERRORS.split()
    assert {name for name in vars(errors) if name.endswith("Error")} <= set(errors.__all__)


def test_the_public_names_of_contrib_are_these() -> None:
    """Read from the source, since the packages that they are for may be missing."""
    folder = Path(contrib.__path__[0])
    modules = {path.stem: path for path in folder.glob("[!_]*.py")}
    modules |= {path.parent.name: path for path in folder.glob("*/__init__.py")}
    assert modules.keys() == CONTRIB.keys() | OTHERS
    for name, path in modules.items():
        values = [
            ast.literal_eval(node.value)
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        ]
        expected = [CONTRIB[name].split()] if name in CONTRIB else []
        assert [sorted(value) for value in values] == expected, name
    assert sorted(importlib.import_module("graphile_worker.contrib.django").__all__) == DJANGO.split()


def test_names_are_few_at_the_top_and_in_one_module_each() -> None:
    assert set(FIXED.split()) <= set(PUBLIC["graphile_worker"].split())
    assert len(PUBLIC["graphile_worker"].split()) <= 40
    names = [name for names in PUBLIC.values() for name in names.split()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_and_programs_find_the_same_names(package: str) -> None:
    module = importlib.import_module(package)
    static = _imported_for_type_checkers(package)
    assert set(module.__all__) - {"__version__"} == set(static)
    for name, home in static.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name), name


@pytest.mark.parametrize("package", PACKAGES)
def test_names_are_listed_and_others_are_refused(package: str) -> None:
    module = importlib.import_module(package)
    assert dir(module) == sorted(module.__all__)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'quick_add_job'"):
        module.quick_add_job  # noqa: B018


def test_a_star_import_brings_every_name() -> None:
    namespace: dict[str, object] = {}
    exec("from graphile_worker import *", namespace)
    assert set(PUBLIC["graphile_worker"].split()) <= set(namespace)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_package_alone_imports_next_to_nothing(package: str) -> None:
    code = f"import sys, {package}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    expected = {"graphile_worker", "graphile_worker.values", package}
    assert {name for name in done.stdout.split() if name.startswith("graphile_worker")} == expected


def test_types_for_type_checkers_are_not_imported_at_run_time() -> None:
    code = "import sys, graphile_worker as g; g.run, g.Runner, g.make_worker_utils; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    imported = set(done.stdout.split())
    assert "graphile_worker.runner.runner" in imported, done.stderr
    assert not {name for name in imported if name.endswith((".arguments", ".option_values"))}
