"""The arguments of `run` and `run_once` as type checkers and editors see them.

No module imports this one at run time; the reference pages are made from it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..cron import ParsedCronItem
from ..database.connections.connection import AnyConnection, AnyPool
from ..hooks import Events, Hooks, Plugin
from ..tasks.registry import TaskList
from ..values.clock import Clock
from ..values.flags import FlagSource
from ..values.options import WorkerOptions, WorkerOptionValues
from .application import App, Lifespan


class WorkerArguments(WorkerOptionValues, total=False):
    """Objects of the program, which no file and no environment variable can hold."""

    app: App | Lifespan | str | None
    """An `App` or a lifespan, or its name as `module:attribute`; see [the application](../application.md)."""
    task_list: TaskList | None
    """Tasks or functions, or a mapping of identifiers to them, in place of `task_directory`."""
    crontab: str | None
    """Recurring jobs as the text of a crontab, in place of `crontab_file`."""
    parsed_cron_items: Sequence[ParsedCronItem] | None
    """Recurring jobs from `parse_cron_items` or `parse_crontab`."""
    forbidden_flags: FlagSource
    """Skip jobs with these [flags](../flags.md): a list, or a (coroutine) function that returns one."""
    accepted_flags: FlagSource
    """Take only jobs with one of these flags, as above. An empty list is no rule."""
    flag_allowlist: FlagSource
    """Take only jobs without other flags than these, as above. With an empty list: without any."""
    events: Events | None
    """The `Events` object to report to; register observers on it before the worker starts."""
    hooks: Hooks | None
    """A `Hooks` object: events and interceptors together, in place of `events`."""
    plugins: Iterable[Plugin | str]
    """Objects with `install(hooks)`, called before anything starts; they serve this run only.

    Names of plugins may be among them. Those of the configuration are used too.
    """
    extensions: Iterable[object] | Mapping[type[Any], object]
    """Objects of your application that tasks get with `helpers.extension(Type)`."""
    dependency_overrides: Mapping[Callable[..., Any], Callable[..., Any]] | None
    """Functions to call in place of those that `Depends` names; for tests."""
    logger: logging.Logger | None
    """A `logging.Logger` for this worker and its tasks; see [logging](../logging.md)."""
    clock: Clock | None
    """The source of time; for tests."""
    options: WorkerOptions | None
    """A `WorkerOptions` object to start from, in place of the environment and the configuration file."""


class RunArguments(WorkerArguments, total=False):
    """The arguments of `run`."""

    pg_pool: AnyPool | None
    """Your own asyncpg pool in place of `connection_string`; it stays open."""


class RunOnceArguments(WorkerArguments, total=False):
    """The arguments of `run_once`."""

    pg_pool: AnyPool | AnyConnection | None
    """Your own asyncpg pool, which stays open, in place of `connection_string`.

    `run_once` takes a single connection too.
    """
