"""`graphile-worker migrate`, `cleanup` and `force-unlock`, and Node's `--schema-only` and `--cleanup`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from ...config import Settings
from ...database.migrations import MigrationReport, migration_sql
from ...diagnostics.json_shapes import cleanup_as_json, migration_as_json
from ...values.text import count
from ..support.client import run_async, utils_for, with_app
from ..support.command import Output, client_command, command, record_command
from ..support.output import progress_bar
from ..support.parameters import CLEANUP_NAMES, CLEANUP_TASKS

if TYPE_CHECKING:
    from ...client import WorkerUtils
    from ...database.statements.cleanup import CleanupReport


@command("cleanup", database=True, flags=("task_directory", "app"))
@click.argument("names", nargs=-1, type=CLEANUP_NAMES, metavar="[NAMES]...")
@click.option("--app", metavar="MODULE:ATTR", help="Application whose task names are kept.")
@click.option(
    "--tasks",
    "task_directory",
    metavar="DIR|MODULE:ATTR",
    help="Tasks whose names are kept.  [default: tasks]",
)
def cleanup_command(settings: Settings, names: tuple[tuple[str, ...], ...]) -> Output:
    """Delete unused queues and task names, or permanently failed jobs.

    \b
    GC_JOB_QUEUES            named queues without jobs
    GC_TASK_IDENTIFIERS      task names without jobs, unless a running worker or a local task has them
    DELETE_PERMAFAILED_JOBS  permanently failed jobs
    Without NAMES: the first two.

    \b
    graphile-worker cleanup
    graphile-worker cleanup GC_JOB_QUEUES DELETE_PERMAFAILED_JOBS
    """
    chosen = [name for group in names for name in group] or ["GC_TASK_IDENTIFIERS", "GC_JOB_QUEUES"]
    report = run_async(_cleanup(settings, chosen))
    return Output(lambda: cleanup_as_json(report), lambda: click.echo(_describe(report)))


def run_cleanup(settings: Settings, names: list[str]) -> int:
    """`--cleanup NAMES` of the worker."""
    click.echo(_describe(run_async(_cleanup(settings, names))))
    return 0


async def _cleanup(settings: Settings, names: list[str]) -> CleanupReport:
    keep = _local_tasks(settings) if "GC_TASK_IDENTIFIERS" in names else []
    wanted: Any = [name for name in CLEANUP_TASKS if name in names]
    async with utils_for(settings) as utils:
        if "DELETE_PERMAFAILED_JOBS" not in names or not sys.stderr.isatty():
            report = await utils.cleanup(wanted, task_identifiers_to_keep=keep)
        else:
            report = await _cleanup_with_bar(utils, wanted, keep)
        await record_command(utils, "cleanup", {"names": names})
        return report


async def _cleanup_with_bar(utils: WorkerUtils, wanted: Any, keep: list[str]) -> CleanupReport:
    """The same with a progress bar: deleting a million jobs takes a while."""
    from ...database.statements.cleanup import DELETE_BATCH, cleanup

    failed = (await utils.statistics.jobs()).jobs.failed
    with progress_bar("deleting failed jobs", total=failed, wanted=failed >= DELETE_BATCH) as bar:
        async with utils.with_pg_client() as connection:
            return await cleanup(
                connection,
                utils.schema,
                wanted,
                task_identifiers_to_keep=keep,
                on_jobs_deleted=lambda total: bar.show(f"{total:,} jobs", done=total),
            )


def _local_tasks(settings: Settings) -> list[str]:
    """Names of local tasks, which are kept even without jobs."""
    directory = settings.worker.task_directory
    app = with_app(settings)[1]
    own = [] if app is None else list(app.tasks)
    if "task_directory" not in settings.places and (own or not os.path.exists(directory)):
        return own
    from ...tasks.loading.load import load_tasks

    return [*own, *load_tasks(directory)]


def _describe(report: CleanupReport) -> str:
    deleted = [
        (report.permafailed_jobs, "permanently failed job"),
        (report.task_identifiers, "unused task name"),
        (report.job_queues, "unused queue"),
    ]
    parts = [count(number, noun) for number, noun in deleted if number]
    return f"Deleted {', '.join(parts)}." if parts else "Nothing to delete."


@client_command("force-unlock", audit="force_unlock")
@click.argument("worker_ids", nargs=-1, required=True, metavar="POOL_ID...")
async def force_unlock_command(utils: WorkerUtils, worker_ids: tuple[str, ...]) -> Output:
    """Unlock all jobs and queues that worker pools have locked.

    `list` and `queues` show POOL_ID as "locked by". Make sure that the pool is dead: a job that is still
    running there would run a second time.

    \b
    graphile-worker force-unlock worker-pool-1a2b3c
    """
    await utils.force_unlock_workers(worker_ids)
    return Output(
        lambda: {"unlocked_workers": list(worker_ids)},
        lambda: click.echo(f"Unlocked everything of {count(len(worker_ids), 'worker pool')}."),
    )


@command("migrate", database=True)
@click.option("--sql", is_flag=True, help="Print the SQL of a new installation; needs no database.")
def migrate_command(settings: Settings, sql: bool) -> Output:
    """Install or upgrade the schema.

    \b
    graphile-worker migrate -c postgres:///my_db
    graphile-worker migrate --sql -s my_schema > install.sql
    """
    if sql:
        script = migration_sql(settings.worker.schema_name)
        return Output(
            lambda: {"schema": settings.worker.schema, "sql": script}, lambda: click.echo(script, nl=False)
        )
    report = run_async(migrate_schema(settings))
    return Output(lambda: migration_as_json(report), lambda: click.echo(describe_report(report)))


async def migrate_schema(settings: Settings) -> MigrationReport:
    """Install or upgrade the schema that the settings name."""
    async with utils_for(settings) as utils:
        return await utils.migrate()


def describe_report(report: MigrationReport) -> str:
    """What was done, on one line."""
    schema, revision = report.schema.quoted, str(report.revision)
    if report.rust_revisions:
        revision += f"; {' and '.join(map(str, report.rust_revisions))} of Rust"
    if report.found_revision is None:
        return f"Schema {schema} installed (revision {report.revision})."
    if report.applied_revisions:
        return f"Schema {schema} upgraded from revision {report.found_revision} to {report.revision}."
    if report.changed:
        return f"Schema {schema} (revision {revision}): Python-only objects added."
    return f"Schema {schema} is up to date (revision {revision})."
