"""The reference of events: every class, its name, when it comes and what it carries."""

from __future__ import annotations

import msgspec

from graphile_worker.hooks import events
from graphile_worker.hooks.events import EVENT_TYPES, CronBackfillItem, CronJob, Event

from .members import cell, field_types, first_paragraph

HEAD = """\
# Events

A worker tells what happens to observers. They cannot change or break anything: an exception in one is logged and
the worker goes on. Events that say a job was completed or failed come after that was committed to the database.

```python
from graphile_worker import Events, make_worker_utils, run_once, task
from graphile_worker.hooks.events import JobFailed, JobSucceeded

events = Events()
seen = []


@events.on(JobSucceeded)
def succeeded(event: JobSucceeded) -> None:
    seen.append(f"{event.job.task_identifier} took {event.duration:.3f} s")


@events.on("job:failed")  # the name that Graphile Worker for Node has for it
async def failed(event: JobFailed) -> None:  # runs beside the worker, which waits for it at its end
    seen.append(f"given up: {event.error}")


@task
async def greet(payload: dict[str, str]) -> None:
    print("hello", payload["name"])


async with make_worker_utils() as utils:
    await utils.add_job(greet, {"name": "Ada"})
await run_once(task_list=[greet], events=events)
assert len(seen) == 1
```

`Event` in place of a class observes all events. `events.off(kind, handler)` ends it. One `Events` object may serve
several workers. To steer rather than watch, see [interceptors](../errors-and-retries.md#steering-from-outside).

The classes are in `graphile_worker.hooks.events`. They are frozen and hold values, never pools or connections; times
in `delay` and `duration` are seconds. The names are those of Graphile Worker for Node, except for those marked with
a star, which it does not have.
"""

OURS = frozenset({"job:interrupted"})
"""Events that Graphile Worker for Node does not have."""


def page(_: object = None) -> str:
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
    "": "The process",
}


def _groups() -> dict[str, list[type[Event]]]:
    groups: dict[str, list[type[Event]]] = {title: [] for title in TITLES.values()}
    for name, kind in EVENT_TYPES.items():
        prefix = name.partition(":")[0] if ":" in name else ""
        groups.setdefault(TITLES.get(prefix, prefix.capitalize()), []).append(kind)
    return {title: kinds for title, kinds in groups.items() if kinds}


def _row(kind: type[Event]) -> str:
    star = " ★" if kind.name in OURS else ""
    return f"| `{kind.__name__}` | `{kind.name}`{star} | {_members(kind)} | {cell(first_paragraph(kind))} |"


def _members(kind: type[msgspec.Struct]) -> str:
    types: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__ == events.__name__:
            types |= field_types(base)
    fields = [name for name in kind.__struct_fields__ if name in types]
    return ", ".join(f"`{name}: {cell(types[name])}`" for name in fields)
