"""The reference of the library: a page per group of public names, made from signatures and docstrings."""

from __future__ import annotations

import importlib
import inspect
import re
import typing
from collections.abc import Iterator
from functools import cached_property
from typing import Any, cast

import graphile_worker
from graphile_worker import executors, hooks, logging, options, results, testing
from graphile_worker.client.api import (
    ClientArguments,
    DatabaseArguments,
    SharedArguments,
    SyncClientArguments,
)
from graphile_worker.values.options import ClientOptionValues

from .members import alias, cell, default_of, field_texts, field_types, first_paragraph, text


def _interceptor_types() -> str:
    """The types of the functions that `Hooks` takes."""
    methods = [member for name, member in vars(hooks.Hooks).items() if not name.startswith("_")]
    signatures = [inspect.signature(member).parameters for member in methods if inspect.isfunction(member)]
    return " ".join(each["interceptor"].annotation for each in signatures if "interceptor" in each)


MEMBERS = ("jobs", "queues", "workers", "limits", "schedules", "history", "statistics")
"""The members of the client, such as `utils.jobs`."""
HOMES: tuple[Any, ...] = (graphile_worker, options, results, hooks, logging, executors, testing)
"""The modules with public names."""
PAGES = {
    "worker-utils.md": (
        "make_worker_utils add_job_adhoc run_migrations WorkerUtils BulkOptions BulkReport CancelReport "
        "Pause CleanupTask CleanupReport MigrationReport AwaitableContext"
    ),
    "utils-jobs.md": (
        "JobsClient JobFilter JobOrder JobDetails JobState JobHandle JobReference JobStatus JobRecord "
        "Progress JobStack"
    ),
    "utils-queues.md": "QueuesClient QueueSummary",
    "utils-workers.md": (
        "WorkersClient WorkerList WorkerSummary RunningJob Load BlockedLoop LaneDescription ExecutorPlace "
        "FlagDescription ConcurrencyChange SweepReport RecoveredWorker Deploy"
    ),
    "utils-limits.md": "LimitsClient LimitSummary",
    "utils-schedules.md": "SchedulesClient Schedule RegisteredSchedule ScheduleRun",
    "utils-history.md": "HistoryClient FinishedJob FinishedState HistoryFilter AttemptError ErrorGroup",
    "utils-statistics.md": (
        "StatisticsClient Statistics JobCounts StatisticsList TaskStatistics StatisticsGroup BacklogSample"
    ),
    "blocking-client.md": (
        "make_sync_worker_utils SyncWorkerUtils SyncJobHandle SyncJobReference SyncConnection "
        + " ".join(f"Sync{name.capitalize()}Client" for name in MEMBERS)
    ),
    "runner.md": (
        "App Lifespan run run_once serve Runner Lane WorkerOptions RecoveryOptions HistoryOptions "
        "NodeOptions LocalQueueOptions RefetchDelayOptions TaskList FlagSource Clock"
    ),
    "tasks.md": (
        "task TaskOptions Limit Retry Snooze RetryIn GiveUp FailedJob Task JobHelpers SyncHelpers "
        "Extensions Depends AbortSignal get_current_job get_current_helpers"
    ),
    "jobs.md": (
        "Job JobSpec JobOptions JobKeyMode Unique Outcome Completed Failed Snoozed Expired Cancelled "
        "Interrupted"
    ),
    "recurring-jobs.md": (
        "CronItem CronItemOptions parse_crontab parse_cron_items ParsedCronItem ParsedCronOptions"
    ),
    "hooks.md": (
        f"Hooks {_interceptor_types()} CallNext AddWatcher RunWatcher KeptPart SkipJob FailJob LeaveLocked "
        "Plugin PluginWithLifecycle WorkerContext LivePool Events"
    ),
    "executors.md": "ProcessExecutor TaskExecutor TaskCall TaskStack RemoteHelpers",
    "logging.md": "configure_logging TextFormatter JsonFormatter JobContextFilter",
    "testing.md": " ".join(vars(testing)["__all__"]),
}
"""The names on each page, in order."""
INTERNAL = {
    "DatabaseServer": {"admin_url", "prefix"},
    "Events": {"drain", "emit", "excuse_current", "observed", "wants"},
    "Failed": {"drop_frames", "weight"},
    "Hooks": {"for_run", "intercept_add"},
    "JobContextFilter": {"filter"},
    "JobFilter": {"has_conditions", "required_state", "values"},
    "JsonFormatter": {"format"},
    "MigrationReport": {"has_history", "has_tables"},
    "TaskCall": {"message"},
    "Task": {
        "as_received",
        "decode",
        "invoke",
        "is_named",
        "place",
        "prepare",
        "queue_name_for",
        "spec_defaults",
        "takes",
    },
    "TextFormatter": {"format"},
    "WorkerOptions": {"from_mapping", "schema_name"},
}
"""Members without an underscore that are not for users."""
WITH_CONSTRUCTOR = ("App", "ProcessExecutor")
"""Classes that users instantiate with more than their fields."""
FIELDS_ELSEWHERE = {"WorkerOptions": "Its fields are the [options](options.md#options-of-a-worker)."}
OPTIONS_PAGE = (
    "RunArguments", "RunOnceArguments", "ServeArguments", "WorkerArguments", "WorkerOptionValues",
    "OptionsWithPlugins",
)  # fmt: skip
"""Keyword arguments that are listed there."""
CALLS: dict[str, type] = {"ClientArguments": ClientArguments, "SyncClientArguments": SyncClientArguments}
"""Keyword arguments that are listed one by one."""
WIDTH = 100
MEMBER_PAGE = """# `utils.{name}`

A member of [`WorkerUtils`](worker-utils.md), and without `await` of the
[blocking client](blocking-client.md). The types are imported from `graphile_worker`.
"""


def pages() -> dict[str, str]:
    """The text of every page, by file name."""
    return {name: _page(name, names.split()) for name, names in PAGES.items()}


def _page(file: str, names: list[str]) -> str:
    member = file.removeprefix("utils-").removesuffix(".md")
    head = MEMBER_PAGE.format(name=member) if member in MEMBERS else text(file)
    lines = [head.rstrip("\n"), ""]
    for name in names:
        lines += [f"## `{name}`", ""]
        if (member_class := _member_class(name)) is not None:
            lines += _entry(name, member_class)
            continue
        home = next(module for module in HOMES if name in module.__all__)
        if home is not graphile_worker and home.__name__ != f"graphile_worker.{file.removesuffix('.md')}":
            lines += [f"`from {home.__name__} import {name}`", ""]
        lines += _entry(name, getattr(home, name))
    return "\n".join(lines).rstrip("\n") + "\n"


def _member_class(name: str) -> type | None:
    """The class of a member of a client, such as `JobsClient`."""
    member = name.removeprefix("Sync").removesuffix("Client").lower()
    if member not in MEMBERS or not name.endswith("Client"):
        return None
    module = importlib.import_module(f"graphile_worker.client.members.{member}")
    return cast("type", getattr(module, name))


def _entry(name: str, thing: Any) -> Iterator[str]:
    if inspect.isfunction(thing):
        yield from _function(name, thing)
    elif inspect.isclass(thing):
        yield from _class(thing)
    else:  # a type alias
        value, meaning = alias(name)
        yield from ("```text", f"{name} = {value}", "```", "", *([meaning, ""] if meaning else ()))


def _class(cls: type) -> Iterator[str]:
    yield from _docstring(cls)
    if cls.__name__ in WITH_CONSTRUCTOR:
        shown = signature(cls.__name__, vars(cls)["__init__"]).removesuffix(" -> None")
        yield from ("```text", shown, "```", "")
    if "__call__" in vars(cls) and cls.__name__ in vars(testing)["__all__"]:
        yield from _function(_snake_case(cls.__name__), vars(cls)["__call__"])
    if cls.__name__ in FIELDS_ELSEWHERE:
        yield from (FIELDS_ELSEWHERE[cls.__name__], "")
    elif rows := list(_rows(cls)):
        yield from ("| attribute | type | default | meaning |", "|---|---|---|---|", *rows, "")
    for name, member in _members(cls):
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if inspect.isfunction(function):
            yield from (f"### `{cls.__name__}.{name}`", "", *_function(name, function))


def _rows(cls: type) -> Iterator[str]:
    """Fields and properties as rows of a table."""
    for base in reversed(_own_bases(cls)):
        types, texts = field_types(base), field_texts(base)
        for name, annotation in types.items():
            if _is_public(cls, name):
                yield _row(name, annotation, default_of(base, name), texts[name])
    for name, member in _members(cls):
        if isinstance(member, property | cached_property):
            getter: Any = member.fget if isinstance(member, property) else member.func
            annotation = inspect.get_annotations(getter)["return"].removesuffix("[ConnectionT]")
            yield _row(name, annotation, "", first_paragraph(getter))


def _row(name: str, annotation: str, default: str, meaning: str) -> str:
    shown = f"`{cell(default)}`" if default else ""
    return f"| `{name}` | `{cell(annotation)}` | {shown} | {cell(meaning)} |"


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    for base in _own_bases(cls):
        for name, member in vars(base).items():
            if _is_public(cls, name) and first_paragraph(member):
                yield name, member


def _own_bases(cls: type) -> list[type]:
    return [base for base in cls.__mro__ if base.__module__.startswith("graphile_worker")] or [cls]


def _is_public(cls: type, name: str) -> bool:
    return not name.startswith(("_", "raw_")) and name not in INTERNAL.get(cls.__name__, ())


def _function(name: str, function: Any) -> Iterator[str]:
    shapes = typing.get_overloads(inspect.unwrap(function))
    # The function itself says more than its overloads if it spells the options out.
    if not shapes or not _is_vague(function):
        shapes = [function]
    yield "```text"
    for shape in shapes:
        yield signature(name, shape)
    yield from ("```", "")
    yield from _docstring(function)


def _is_vague(function: Any) -> bool:
    return bool(inspect.signature(function).return_annotation == "Any")


def signature(name: str, function: Any) -> str:
    """A function's signature as it is written in the code, on one line if it fits."""
    found = inspect.signature(function)
    parameters = [p for p in found.parameters.values() if p.name not in ("self", "cls")]
    parts: list[str] = []
    for before, parameter in zip([None, *parameters], parameters, strict=False):
        is_keyword = parameter.kind is parameter.KEYWORD_ONLY
        if is_keyword and (before is None or before.kind not in (before.KEYWORD_ONLY, before.VAR_POSITIONAL)):
            parts.append("*")
        parts += _parameter(parameter, function)
    is_async = inspect.iscoroutinefunction(function)
    # The class has a method `list`, so its annotations name the module of the other one.
    result = str(found.return_annotation).replace("builtins.", "")
    start, end = f"{'await ' if is_async else ''}{name}(", f") -> {result}"
    line = start + ", ".join(parts) + end
    if len(line) <= WIDTH:
        return line
    return "\n".join((start, *(f"    {part}," for part in parts), end))


def _parameter(parameter: inspect.Parameter, function: Any) -> list[str]:
    if parameter.kind is parameter.VAR_KEYWORD:
        return _keywords(parameter)
    prefix = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
    annotation = parameter.annotation
    if annotation == "Any":  # only the overloads know better
        annotation = " | ".join(dict.fromkeys(_overloaded(function, parameter.name))) or "Any"
    shown = f"{prefix}{parameter.name}: {annotation.replace('ConnectionT', 'UserConnection')}"
    return [shown if parameter.default is parameter.empty else f"{shown} = {parameter.default!r}"]


def _overloaded(function: Any, name: str) -> Iterator[str]:
    """The annotations of a parameter in the overloads; by position in those that have another name for it."""
    position = list(inspect.signature(function).parameters).index(name)
    for each in typing.get_overloads(function):
        parameters = list(inspect.signature(each).parameters.values())
        for number, found in enumerate(parameters):
            if found.name == name or (number == position and found.kind is found.POSITIONAL_ONLY):
                yield found.annotation


def _keywords(parameter: inspect.Parameter) -> list[str]:
    """Keywords of a TypedDict: by its name, or one by one if it has no entry of its own."""
    kind = parameter.annotation.removeprefix("Unpack[").removesuffix("]")
    if kind in OPTIONS_PAGE:
        return [f"**{parameter.name}"]
    if kind == "AdhocArguments":
        own = (f"{name}: {annotation} = ..." for name, annotation in field_types(DatabaseArguments).items())
        return ["*", *own, f"**{parameter.name}: JobOptions"]
    if kind not in CALLS:
        return [f"**{parameter.name}: {kind}"]
    types = field_types(ClientOptionValues) | field_types(SharedArguments) | field_types(CALLS[kind])
    return ["*", *(f"{name}: {annotation} = ..." for name, annotation in types.items())]


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


def _docstring(thing: Any) -> Iterator[str]:
    found = inspect.getdoc(thing) or ""
    # How a Job is stored is not for users.
    yield from (found.partition("\n\n")[0] if thing is graphile_worker.Job else found).splitlines()
    yield ""
