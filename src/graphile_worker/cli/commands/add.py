"""`graphile-worker add`: one job from the arguments, or many from a file of JSON lines.

A task name that nobody knows is no error, because the worker that has it may come later; but where a known
name is nearly the same, that is said on standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click

from ...errors import InvalidArgumentError
from ...job import Job
from ...json_shapes import job_as_json
from ...spec import JOB_KEY_MODES, JobSpec
from ..support.bulk_input import add_from
from ..support.client import load_settings, run_async, start_logging, utils_for
from ..support.output import cell, count, print_json
from ..support.parameters import When, command_options

if TYPE_CHECKING:
    from ...client import WorkerUtils
    from ..support.task_names import TaskNames

STDIN = "-"


@click.command("add")
@command_options
@click.argument("task", required=False)
@click.argument("payload", required=False)
@click.option("--payload-file", metavar="FILE", help="Read the payload from a file, or - for standard input.")
@click.option("--queue", metavar="NAME", help="Named queue: its jobs run one after the other.")
@click.option(
    "--run-at", type=When(), metavar="WHEN", help="Not before: 2030-01-31T12:00:00Z, or 5m, 2h, 1d12h."
)
@click.option("--max-attempts", type=int, metavar="N", help="Tries in all.  [default: 25]")
@click.option("--key", metavar="KEY", help="Job key: replaces a waiting job that has the same one.")
@click.option("--key-mode", type=click.Choice(list(JOB_KEY_MODES)), help="What happens to that waiting job.")
@click.option("--priority", type=int, metavar="N", help="Smaller numbers run first.  [default: 0]")
@click.option("--flag", "flags", multiple=True, metavar="NAME", help="A flag; may be given more than once.")
@click.option(
    "--from", "source", metavar="FILE", help="Add one job for each line of JSON, - for standard input."
)
@click.option(
    "--strict", is_flag=True, help="Refuse a task that neither the database nor the folder of tasks knows."
)
@click.pass_context
def add_command(
    ctx: click.Context,
    /,
    as_json: bool,
    task: str | None,
    payload: str | None,
    payload_file: str | None,
    queue: str | None,
    run_at: datetime | timedelta | None,
    max_attempts: int | None,
    key: str | None,
    key_mode: Any,
    priority: int | None,
    flags: tuple[str, ...],
    source: str | None,
    strict: bool,
    **_: Any,
) -> None:
    """Add a job: TASK is its task's name, PAYLOAD is JSON, or - to read it from standard input.

    \b
    graphile-worker add send_email '{"to": "a@example.com"}' --run-at 5m
    graphile-worker add --from jobs.jsonl

    A line of such a file is an object with "task" and any of "payload", "queue", "run_at", "max_attempts",
    "key", "key_mode", "priority" and "flags". All lines are added in one transaction, or none is.
    """
    if source is not None:
        given = (
            task,
            payload,
            payload_file,
            queue,
            run_at,
            max_attempts,
            key,
            key_mode,
            priority,
            flags or None,
        )
        if any(value is not None for value in given):
            raise click.UsageError(
                "--from takes everything from the file; leave out the task and its options.", ctx
            )
        added = run_async(_add_many(ctx, source, strict=strict))
        print_json({"added": added}) if as_json else click.echo(f"Added {count(added, 'job')}.")
        return
    if task is None:
        raise click.UsageError("Say which TASK the job is for, or give a file with --from.", ctx)
    spec = JobSpec(
        task,
        _read_payload(payload, payload_file),
        queue_name=queue,
        run_at=run_at,
        max_attempts=max_attempts,
        job_key=key,
        job_key_mode=key_mode,
        priority=priority,
        flags=flags or None,
    )
    job = run_async(_add_one(ctx, spec, strict=strict))
    print_json(job_as_json(job, queue_name=queue)) if as_json else click.echo(_describe(job, queue))


async def _add_one(ctx: click.Context, spec: JobSpec, *, strict: bool) -> Job:
    async with _opened(ctx) as (utils, names):
        names.check([spec.task_identifier], strict=strict)
        job = await utils.add_job(spec)
        _warn(
            names,
            f"The job waits for a worker that has it; `graphile-worker complete {job.id}` takes it back.",
        )
        return job


async def _add_many(ctx: click.Context, source: str, *, strict: bool) -> int:
    if source == STDIN:
        return await _add_lines(ctx, sys.stdin, "standard input", strict=strict)
    try:
        lines = open(source, encoding="utf-8")  # noqa: SIM115, ASYNC230 — nothing else runs meanwhile
    except OSError as error:
        raise InvalidArgumentError("--from", f"{source} cannot be read: {error.strerror}") from error
    with lines:
        return await _add_lines(ctx, lines, source, strict=strict)


async def _add_lines(ctx: click.Context, lines: TextIO, name: str, *, strict: bool) -> int:
    async with _opened(ctx) as (utils, names):
        added = await add_from(utils, lines, name, lambda used: names.check(used, strict=strict))
        _warn(names, "Its jobs wait for a worker that has it.")
        return added


@asynccontextmanager
async def _opened(ctx: click.Context) -> AsyncIterator[tuple[WorkerUtils, TaskNames]]:
    from ..support.task_names import known_names

    settings = load_settings(ctx, {})
    start_logging(settings, quiet=True)
    async with utils_for(settings) as utils:
        yield utils, await known_names(utils, settings.worker.schema_name, settings.worker.task_directory)


def _warn(names: TaskNames, consequence: str) -> None:
    for warning in names.warnings():
        click.echo(f"graphile-worker: warning: {warning} {consequence}", err=True)


def _read_payload(payload: str | None, file: str | None) -> Any:
    """The payload from wherever it was given; none at all is None, which becomes an empty object."""
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
        raise click.BadParameter("it is nested too deep", param_hint=place) from None
    except ValueError as error:
        hint = """JSON needs double quotes, and in a shell quotes around it, as in '{"a": 1}'"""
        raise click.BadParameter(f"it is not JSON: {error}. {hint}", param_hint=place) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _describe(job: Job, queue: str | None) -> str:
    parts = [f"Added job {job.id}: {cell(job.task_identifier)}"]
    if queue is not None:
        parts.append(f"queue {cell(queue)}")
    if job.key is not None:
        parts.append(f"key {cell(job.key)}")
    return ", ".join([*parts, f"to run at {cell(job.run_at)}"])
