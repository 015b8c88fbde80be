"""`graphile-worker cleanup` and `force-unlock`, and Node's flag `--cleanup`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from ...config import Settings
from ...json_shapes import cleanup_as_json
from ..support.client import load_settings, open_utils, run_async, start_logging, utils_for
from ..support.output import count, print_json
from ..support.parameters import CLEANUP_TASKS, CleanupTasks, command_options
from ..support.progress import progress_bar

if TYPE_CHECKING:
    from ...client import WorkerUtils
    from ...queries.maintenance import CleanupReport


@click.command("cleanup")
@command_options
@click.argument("names", nargs=-1, type=CleanupTasks(), metavar="[NAMES]...")
@click.option("--tasks", metavar="DIR|MODULE:ATTR", help="Tasks whose names are kept.  [default: tasks]")
@click.pass_context
def cleanup_command(
    ctx: click.Context, /, as_json: bool, names: tuple[tuple[str, ...], ...], tasks: str | None, **_: Any
) -> None:
    """Delete what is no longer needed.

    \b
    GC_JOB_QUEUES            queues that no job uses
    GC_TASK_IDENTIFIERS      task names that no job uses and no local task has
    DELETE_PERMAFAILED_JOBS  jobs that failed for good
    Without NAMES: the first two.

    \b
    graphile-worker cleanup
    graphile-worker cleanup GC_JOB_QUEUES DELETE_PERMAFAILED_JOBS
    """
    settings = load_settings(ctx, {"task_directory": tasks})
    start_logging(settings, quiet=True)
    chosen = [name for group in names for name in group] or ["GC_TASK_IDENTIFIERS", "GC_JOB_QUEUES"]
    report = run_async(_cleanup(settings, chosen))
    if as_json:
        print_json(cleanup_as_json(report))
    else:
        click.echo(_describe(report))


def run_cleanup(settings: Settings, names: list[str]) -> int:
    """`--cleanup NAMES` of the worker."""
    click.echo(_describe(run_async(_cleanup(settings, names))))
    return 0


async def _cleanup(settings: Settings, names: list[str]) -> CleanupReport:
    keep = _local_tasks(settings) if "GC_TASK_IDENTIFIERS" in names else []
    wanted: Any = [name for name in CLEANUP_TASKS if name in names]
    async with utils_for(settings) as utils:
        if "DELETE_PERMAFAILED_JOBS" not in names or not sys.stderr.isatty():
            return await utils.cleanup(wanted, task_identifiers_to_keep=keep)
        return await _cleanup_shown(utils, wanted, keep)


async def _cleanup_shown(utils: WorkerUtils, wanted: Any, keep: list[str]) -> CleanupReport:
    """The same with a bar: deleting a million jobs takes a while."""
    from ...queries.maintenance import DELETE_BATCH, cleanup

    failed = (await utils.statistics()).jobs.failed
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
    """Names of the tasks that are here, so that they stay known although no job uses them now."""
    directory = settings.worker.task_directory
    if "task_directory" not in settings.places and not os.path.exists(directory):
        return []
    from ...tasks.load import load_tasks

    return list(load_tasks(directory))


def _describe(report: CleanupReport) -> str:
    done = [
        (report.permafailed_jobs, "job that failed for good", "jobs that failed for good"),
        (report.task_identifiers, "unused task name", "unused task names"),
        (report.job_queues, "unused queue", "unused queues"),
    ]
    parts = [f"{number:,} {one if number == 1 else many}" for number, one, many in done if number]
    return f"Deleted {', '.join(parts)}." if parts else "There was nothing to delete."


@click.command("force-unlock")
@command_options
@click.argument("worker_ids", nargs=-1, required=True, metavar="POOL_ID...")
@click.pass_context
def force_unlock_command(ctx: click.Context, /, as_json: bool, worker_ids: tuple[str, ...], **_: Any) -> None:
    """Unlock all jobs and queues that these worker pools hold.

    POOL_ID is what `list` and `queues` show as "locked by". Be sure that the pool is dead: a job that still
    runs there would run a second time.

    \b
    graphile-worker force-unlock worker-pool-1a2b3c
    """
    run_async(_force_unlock(ctx, worker_ids))
    if as_json:
        print_json({"unlocked_workers": list(worker_ids)})
    else:
        click.echo(f"Unlocked what {count(len(worker_ids), 'worker pool')} held.")


async def _force_unlock(ctx: click.Context, worker_ids: tuple[str, ...]) -> None:
    async with open_utils(ctx) as utils:
        await utils.force_unlock_workers(worker_ids)
