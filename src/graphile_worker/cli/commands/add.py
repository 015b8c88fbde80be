"""`graphile-worker add`: one job from the arguments, or many from a file of JSON lines.

If the task is found in the task directory, its options apply and the payload is checked. An unknown name is
no error, because its worker may start later. If it resembles a known name, a warning on standard error says
so.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click

from ...config import Settings
from ...diagnostics.json_shapes import job_as_json
from ...errors import InvalidArgumentError
from ...values.job import Job
from ...values.job_options import JobOption, options_on
from ...values.spec import JobSpec, Unique
from ...values.text import count
from ..support.bulk_input import add_from
from ..support.client import run_async, utils_for, with_app
from ..support.command import Output, command
from ..support.output import cell
from ..support.parameters import PERIOD, WHEN, flags

if TYPE_CHECKING:
    from ...client import WorkerUtils
    from ..support.task_names import LocalTasks, TaskNames

STDIN = "-"


def _flags(option: JobOption) -> Iterator[Callable[[Any], Any]]:
    """One flag; two for an option that is either a switch or has a value."""
    name = "--" + (option.flag or option.short).replace("_", "-")
    help = option.help + (f"  [default: {option.default}]" if option.default else "")
    if option.kind in ("switch", "keep", "unique"):
        yield click.option(name, option.name, is_flag=True, default=None, help=option.help)
    if option.kind == "keep":
        yield click.option(
            f"{name}-for", f"{option.name}_for", type=PERIOD, metavar=option.metavar,
            help="The same, for this long, such as 12h or 30d.",
        )  # fmt: skip
    if option.kind == "unique":
        yield click.option(
            f"{name}-by", f"{option.name}_by", multiple=True, metavar=option.metavar,
            help="The same for a member of the payload; repeatable.",
        )  # fmt: skip
    if option.kind == "names":
        yield click.option(
            name, option.name, multiple=True, metavar=option.metavar, help=f"{option.help} Repeatable."
        )
    if option.kind == "choice":
        yield click.option(name, option.name, type=click.Choice(option.choices), help=help)
    if (kind := TYPES.get(option.kind)) is not None:
        yield click.option(name, option.name, type=kind, metavar=option.metavar, help=help)


TYPES: dict[str, Any] = {"text": str, "number": int, "time": WHEN, "period": PERIOD}


def _chosen(flags: dict[str, Any]) -> dict[str, Any]:
    """The options of JobSpec that the flags set; None for the others."""
    values = dict(flags)
    kept_for, members = values.pop("keep_for"), values.pop("unique_by")
    if kept_for is not None:
        values["keep"] = kept_for
    if members or values["unique"]:
        values["unique"] = Unique(fields=members)
    return {name: None if value == () else value for name, value in values.items()}


@command("add", database=True)
@click.argument("task", required=False)
@click.argument("payload", required=False)
@click.option("--payload-file", metavar="FILE", help="Read the payload from a file, or from - (stdin).")
@flags(*(flag for option in options_on("add") for flag in _flags(option)))
@click.option(
    "--from", "source", metavar="FILE", help="Add a job for each line of a JSON Lines file, or of - (stdin)."
)
@click.option(
    "--strict",
    is_flag=True,
    help="Refuse a task that is neither in the database, in the app, nor in the task directory.",
)
@click.option(
    "--wait",
    "is_awaited",
    is_flag=True,
    help="Wait for the job to finish and print its result; implies --keep.",
)
@click.option(
    "--wait-timeout",
    type=PERIOD,
    metavar="TIME",
    help="With --wait: how long to wait at most, such as 30s or 5m.  [default: no limit]",
)
def add_command(
    settings: Settings,
    task: str | None,
    payload: str | None,
    payload_file: str | None,
    source: str | None,
    strict: bool,
    is_awaited: bool,
    wait_timeout: timedelta | None,
    **given: Any,
) -> Output:
    """Add a job for TASK. PAYLOAD is JSON, or - to read it from standard input.

    \b
    graphile-worker add send_email '{"to": "a@example.com"}' --run-at 5m
    graphile-worker add add_up '[1, 2, 3]' --wait --wait-timeout 30s
    graphile-worker add --from jobs.jsonl

    If TASK is in the app or the task directory, its own options apply where none are given, and the
    payload must fit it.

    A line of the file is an object with "task" and any of "payload" and the options, such as "queue",
    "run_at", "key" and "tags". All lines are added in one transaction.
    """
    if wait_timeout is not None and not is_awaited:
        raise click.UsageError("--wait-timeout is for --wait.")
    options = _chosen(given)
    if source is not None:
        others = (task, payload, payload_file, is_awaited or None, *options.values())
        if any(value is not None for value in others):
            raise click.UsageError("--from cannot be combined with a task or its options.")
        local = _local_tasks(settings)
        added = run_async(_add_many(settings, source, local, strict=strict))
        return Output(lambda: {"added": added}, lambda: click.echo(f"Added {count(added, 'job')}."))
    if task is None:
        raise click.UsageError("Name the TASK of the job, or use --from.")
    if is_awaited and options["keep"] is None:
        options["keep"] = True
    value = _read_payload(payload, payload_file)
    local = _local_tasks(settings)
    spec = JobSpec(local.get(task), value, **options)
    return run_async(_add_one(settings, spec, local, wait_timeout, strict=strict, is_awaited=is_awaited))


def _local_tasks(settings: Settings) -> LocalTasks:
    from ..support.task_names import load_local_tasks

    settings, app = with_app(settings)
    local = load_local_tasks(settings.worker, app)
    if local.problem:
        click.echo(
            "graphile-worker: warning: the tasks cannot be loaded, so the payload is not checked and options "
            f"of @task do not apply: {local.problem}",
            err=True,
        )
    return local


async def _add_one(
    settings: Settings,
    spec: JobSpec,
    local: LocalTasks,
    timeout: timedelta | None,
    *,
    strict: bool,
    is_awaited: bool,
) -> Output:
    """To wait takes two connections: one is told of the end."""
    queue = spec.queue_name
    async with _opened(settings, local, connections=2 if is_awaited else 1) as (utils, names):
        names.check([spec.task_identifier], strict=strict)
        job = await utils.add_job(spec)
        remove = f"to remove it: `graphile-worker cancel {job.id}`."
        _warn(names, f"The job waits for a worker with this task; {remove}")
        if is_awaited:
            from ..support.job_record import wait_for_end

            click.echo(_describe(job, queue), err=True)
            return await wait_for_end(utils, job, queue, timeout)
    return Output(lambda: job_as_json(job, queue_name=queue), lambda: click.echo(_describe(job, queue)))


async def _add_many(settings: Settings, source: str, local: LocalTasks, *, strict: bool) -> int:
    if source == STDIN:
        return await _add_lines(settings, sys.stdin, "standard input", local, strict=strict)
    try:
        lines = open(source, encoding="utf-8")  # noqa: SIM115, ASYNC230 — nothing else runs on this loop
    except OSError as error:
        raise InvalidArgumentError("--from", f"{source} cannot be read: {error.strerror}") from error
    with lines:
        return await _add_lines(settings, lines, source, local, strict=strict)


async def _add_lines(settings: Settings, lines: TextIO, name: str, local: LocalTasks, *, strict: bool) -> int:
    async with _opened(settings, local) as (utils, names):
        added = await add_from(
            utils, lines, name, lambda used: names.check(used, strict=strict), tasks=local.tasks
        )
        _warn(names, "Its jobs wait for a worker with this task.")
        return added


@asynccontextmanager
async def _opened(
    settings: Settings, local: LocalTasks, *, connections: int = 1
) -> AsyncIterator[tuple[WorkerUtils, TaskNames]]:
    from ...database.statements.inspection import known_tasks
    from ..support.task_names import TaskNames

    app = with_app(settings)[1]
    loaded = frozenset((*local.tasks, *(() if app is None else app.tasks)))
    async with utils_for(settings, connections=connections) as utils:
        utils._task_name_check = None  # the command has its own warnings
        async with utils.with_pg_client() as connection:
            known = await known_tasks(connection, settings.worker.schema_name)
        names = TaskNames(known, settings.worker.task_directory, loaded, local.problem is None)
        yield utils, names


def _warn(names: TaskNames, consequence: str) -> None:
    for warning in names.warnings():
        click.echo(f"graphile-worker: warning: {warning} {consequence}", err=True)


def _read_payload(payload: str | None, file: str | None) -> Any:
    """The decoded payload; None, which becomes an empty object, if there is none."""
    if payload is not None and file is not None:
        raise click.UsageError("Give the payload as an argument or with --payload-file, not both.")
    if file is None and payload is None:
        return None
    place = "PAYLOAD"
    if payload == STDIN or file == STDIN:
        payload, place = sys.stdin.read(), "standard input"
    elif file is not None:
        place = file
        try:
            with open(file, encoding="utf-8") as opened:
                payload = opened.read()
        except OSError as error:
            raise click.BadParameter(
                f"{file} cannot be read: {error.strerror}", param_hint="--payload-file"
            ) from error
        except UnicodeDecodeError:
            raise click.BadParameter(f"{file} is not UTF-8 text", param_hint="--payload-file") from None
    return _decode(payload or "", place)


def _decode(text: str, place: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise click.BadParameter("the JSON is nested too deeply", param_hint=place) from None
    except ValueError as error:
        hint = """JSON needs double quotes, and the shell needs quotes around it: '{"a": 1}'"""
        raise click.BadParameter(f"not valid JSON: {error}. {hint}", param_hint=place) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _describe(job: Job, queue: str | None) -> str:
    what = f"Job {job.id} exists already" if job.is_existing else f"Added job {job.id}"
    parts = [f"{what}: {cell(job.task_identifier)}"]
    if queue is not None:
        parts.append(f"queue {cell(queue)}")
    if job.key is not None:
        parts.append(f"key {cell(job.key)}")
    return ", ".join([*parts, f"to run at {cell(job.run_at)}"])
