"""The reference of events: every class with its name, its fields and its occasion."""

from __future__ import annotations

import msgspec

from graphile_worker.hooks import events
from graphile_worker.hooks.events import EVENT_TYPES, CronBackfillItem, Event
from graphile_worker.values import spec
from graphile_worker.values.spec import CronJob

from .members import cell, field_types, first_paragraph, text

HEAD = text("events.md")

NODE = frozenset(
    [
        "pool:create",
        "pool:release",
        "pool:fatalError",
        "pool:listen:connecting",
        "pool:listen:success",
        "pool:listen:release",
        "pool:listen:error",
        "pool:listen:notification",
        "pool:gracefulShutdown",
        "pool:gracefulShutdown:complete",
        "pool:gracefulShutdown:error",
        "pool:gracefulShutdown:workerError",
        "pool:forcefulShutdown",
        "pool:forcefulShutdown:complete",
        "pool:forcefulShutdown:error",
        "localQueue:init",
        "localQueue:setMode",
        "localQueue:getJobs:complete",
        "localQueue:returnJobs",
        "localQueue:refetchDelay:start",
        "localQueue:refetchDelay:abort",
        "localQueue:refetchDelay:expired",
        "worker:create",
        "worker:release",
        "worker:stop",
        "worker:getJob:start",
        "worker:getJob:error",
        "worker:getJob:empty",
        "worker:fatalError",
        "job:start",
        "job:success",
        "job:error",
        "job:failed",
        "job:complete",
        "cron:starting",
        "cron:started",
        "cron:backfill",
        "cron:prematureTimer",
        "cron:overdueTimer",
        "cron:schedule",
        "cron:scheduled",
        "resetLocked:started",
        "resetLocked:success",
        "resetLocked:failure",
        "gracefulShutdown",
        "forcefulShutdown",
        "stop",
    ]
)
"""The events of Graphile Worker 0.18 for Node."""


def page(_: object = None) -> str:
    if missing := NODE - set(EVENT_TYPES):
        raise SystemExit(f"Node has these events and we do not: {sorted(missing)}")
    lines = [HEAD]
    for title, kinds in _groups().items():
        lines += [f"## {title}", "", "| class | name | members | when |", "|---|---|---|---|"]
        lines += [_row(kind) for kind in kinds]
        lines.append("")
    lines += ["## Values in events", "", "| class | members | what it is |", "|---|---|---|"]
    for value in (CronJob, CronBackfillItem):
        lines.append(f"| `{value.__name__}` | {_members(value)} | {cell(first_paragraph(value))} |")
    return "\n".join(lines) + "\n"


TITLES = {
    "pool": "Pool",
    "localQueue": "Local queue",
    "worker": "Slots",
    "job": "Jobs",
    "cron": "Recurring jobs",
    "resetLocked": "Upkeep",
    "recovery": "Recovery",
    "": "The process",
}


def _groups() -> dict[str, list[type[Event]]]:
    groups: dict[str, list[type[Event]]] = {title: [] for title in TITLES.values()}
    for name, kind in EVENT_TYPES.items():
        prefix = name.partition(":")[0] if ":" in name else ""
        groups.setdefault(TITLES.get(prefix, prefix.capitalize()), []).append(kind)
    return {title: kinds for title, kinds in groups.items() if kinds}


def _row(kind: type[Event]) -> str:
    star = "" if kind.name in NODE else " ★"
    return f"| `{kind.__name__}` | `{kind.name}`{star} | {_members(kind)} | {cell(first_paragraph(kind))} |"


def _members(kind: type[msgspec.Struct]) -> str:
    types: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__ in (events.__name__, spec.__name__):
            types |= field_types(base)
    fields = [name for name in kind.__struct_fields__ if name in types]
    return ", ".join(f"`{name}: {cell(types[name])}`" for name in fields)
