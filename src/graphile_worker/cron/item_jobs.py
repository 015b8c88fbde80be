"""Recurring jobs as jobs: with the options of their tasks, as watchers see them, as workers register them.

- `job_options` and `payload_problems` look at a recurring job together with the task it runs: the options of
  its jobs, and whether its payload fits. Pure.
- `WatchedMinutes` shows recurring jobs to watchers of adds: each one alone, because other workers may add
  some of them.
- `schedule_definitions` are what a worker registers, so that others can see, pause and run its recurring
  jobs.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextvars import Context, copy_context
from datetime import UTC, datetime
from typing import Any

import msgspec

from ..database.statements.schedules import STORED_OPTIONS, CronMinute, ScheduleDefinition
from ..errors import CrontabProblem, InvalidArgumentError, InvalidPayloadError
from ..hooks import AddWatcher
from ..hooks.watchers import WatchedAdd
from ..tasks.task import AnyTask
from ..values.job_options import options_on
from ..values.payload import encode
from ..values.spec import CronJob, JobSpec, Unique
from .item import ParsedCronItem, ParsedCronOptions
from .matcher import FunctionMatcher

NO_OPTIONS: Mapping[str, Any] = {}
CRON_MEMBER = "payloads of recurring jobs have the member _cron, an object, which the type must allow"


def own_options(options: ParsedCronOptions) -> dict[str, Any]:
    """The job options that the item itself sets; an empty job key means no key."""
    values = ((option.name, getattr(options, option.name)) for option in options_on("cron"))
    return {name: value for name, value in values if value is not None}


def options_of(task: AnyTask | None, payload: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The options that a task gives its jobs with this payload. Raises InvalidArgumentError."""
    if task is None:
        return NO_OPTIONS
    if task.queue_name_for is None:
        return task.spec_defaults
    return {**task.spec_defaults, "queue_name": task.queue_name_for(payload)}


def job_options(options: ParsedCronOptions, of_task: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an item's jobs: its own, else those of the task."""
    merged = {**of_task, **own_options(options)}
    if options.job_key is not None:
        merged.pop("unique", None)
    if merged.get("job_key") == "":
        del merged["job_key"]
        merged.pop("job_key_mode", None)
    return merged


def flags_of(options: Mapping[str, Any]) -> Collection[str]:
    """The flags of a job with these options, those included that say what no column has."""
    values = {name: value for name, value in options.items() if name not in STORED_OPTIONS}
    values.pop("unique", None)
    return JobSpec("any", flags=options.get("flags"), **values).flags or ()


def payload_at(payload: Mapping[str, Any] | None, minute: datetime, *, backfilled: bool) -> dict[str, Any]:
    """The payload of a recurring job; `_cron` in it is the minute it runs for."""
    marker = {"ts": minute.strftime("%Y-%m-%dT%H:%M:%S.000Z"), "backfilled": backfilled}
    return {**(payload or {}), "_cron": marker}


def check_payload_of(task: AnyTask, payload: Mapping[str, Any] | None) -> None:
    """Raise InvalidPayloadError if the task cannot take this payload together with `_cron`."""
    if task._takes_payload:
        try:
            task.check_payload(payload_at(payload, datetime.now(UTC), backfilled=False))
        except InvalidPayloadError as error:
            task.check_payload(payload)
            message = str(error).removeprefix("payload: ")
            raise InvalidPayloadError(f"{message}; {CRON_MEMBER}") from None
    elif payload:  # `_cron` alone may be ignored
        task.check_payload(payload)


def payload_problems(items: Iterable[ParsedCronItem], tasks: Mapping[str, AnyTask]) -> list[CrontabProblem]:
    """A problem for each item whose task is known and cannot take its payload."""
    problems = []
    for item in items:
        task = tasks.get(item.task_identifier)
        try:
            if task is not None:
                check_payload_of(task, item.payload)
        except InvalidArgumentError as error:
            problems.append(
                CrontabProblem(source=item.source, line=item.line, column=item.column, message=str(error))
            )
    return problems


class WatchedMinutes:
    """The recurring jobs of one or more minutes, while they are added."""

    def __init__(self, watchers: Sequence[AddWatcher], minutes: Sequence[CronMinute]) -> None:
        self._watchers = watchers
        self._adds: list[tuple[CronJob, CronJob, WatchedAdd, Context]] = []
        self.minutes = [
            CronMinute(each.minute, [self._watch(job) for job in each.jobs], each.refused) for each in minutes
        ]
        """With the jobs to send."""

    def _watch(self, job: CronJob) -> CronJob:
        context = copy_context()
        watched = context.run(WatchedAdd, self._watchers, (job,))
        sent = job.with_spec(watched.specs[0])
        self._adds.append((job, sent, watched, context))
        return sent

    def ended(self, added: Sequence[CronJob]) -> list[CronJob]:
        """Tell the watchers which of the sent jobs were added here; returns those as they were before."""
        ours = set(map(id, added))
        for _, sent, watched, context in self._adds:
            context.run(watched.ended, None if id(sent) in ours else ())
        return [job for job, sent, _, _ in self._adds if id(sent) in ours]

    def failed(self, error: BaseException) -> None:
        """Tell the watchers that nothing was added."""
        for _, _, watched, context in self._adds:
            context.run(watched.ended, None, error)


def schedule_definitions(
    items: Sequence[ParsedCronItem], tasks: Mapping[str, AnyTask]
) -> list[ScheduleDefinition]:
    """One definition for each item; options of its task fill in what it does not set."""
    return [_definition(item, tasks.get(item.task_identifier)) for item in items]


def _definition(item: ParsedCronItem, task: AnyTask | None) -> ScheduleDefinition:
    zone = item.options.tz
    return ScheduleDefinition(
        identifier=item.identifier,
        task_identifier=item.task_identifier,
        pattern=item.pattern,
        zone=None if zone is None else zone.key,
        payload=None if item.payload is None else encode(item.payload),
        options=_options(item, task),
        source=_source(item),
    )


def _options(item: ParsedCronItem, task: AnyTask | None) -> dict[str, Any]:
    try:
        of_task = options_of(task, payload_at(item.payload, datetime.now(UTC), backfilled=False))
    except InvalidArgumentError:  # the scheduler reports it whenever the item is due
        of_task = NO_OPTIONS
    merged = job_options(item.options, of_task)
    options: dict[str, Any] = {
        name: merged[name] for name in STORED_OPTIONS if name != "flags" and merged.get(name) is not None
    }
    if flags := flags_of(merged):
        options["flags"] = sorted(flags)
    if isinstance(unique := merged.get("unique"), Unique):
        options["unique"] = msgspec.to_builtins(unique)
    if item.options.backfill_period:
        options["backfill_period"] = item.options.backfill_period
    return options


def _source(item: ParsedCronItem) -> str | None:
    """The file and line of a crontab, or of the function that decides; else that it comes from code."""
    if item.line is not None and item.source:
        return f"{item.source}:{item.line}"
    if isinstance(item.match, FunctionMatcher):
        code = getattr(inspect.unwrap(item.match.function), "__code__", None)
        if code is not None:
            return f"{code.co_filename}:{code.co_firstlineno}"
    return "code"
