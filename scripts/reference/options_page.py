"""The reference of options: every field of the options objects, and what else `run` takes."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec

from graphile_worker import run
from graphile_worker.config.settings import CommandLineOptions
from graphile_worker.options import LocalQueueOptions, RefetchDelayOptions, WorkerOptions

from .members import cell, field_texts, field_types, first_paragraph, text

GROUPS = (
    ("", WorkerOptions),
    ("local_queue.", LocalQueueOptions),
    ("local_queue.refetch_delay.", RefetchDelayOptions),
)
ARGUMENTS = {
    "pg_pool": "Your own asyncpg pool in place of `connection_string`; it stays open. "
    "For `run_once` a connection will do.",
    "task_list": "Tasks or functions, or a mapping of identifiers to them, in place of `task_directory`.",
    "crontab": "Recurring jobs as the text of a crontab, in place of `crontab_file`.",
    "parsed_cron_items": "Recurring jobs from `parse_cron_items` or `parse_crontab`.",
    "forbidden_flags": "Flags of jobs not to run: a list, or a (coroutine) function that gives one.",
    "events": "The `Events` object to report to; register observers on it before the worker starts.",
    "hooks": "A `Hooks` object: events and interceptors together, in place of `events`.",
    "plugins": "Objects with `install(hooks)`, called before anything starts; they serve this run alone.",
    "extensions": "Objects of your application that tasks get with `helpers.extension(Type)`.",
    "logger": "A `logging.Logger` for this worker and its tasks; see [logging](../configuration.md#logging).",
    "clock": "Where the time comes from; for tests.",
    "options": "A `WorkerOptions` object to build on, in place of the environment and the file.",
}
"""What `run` and `run_once` take besides the options; checked against their signatures."""

HEAD = text("options.md")


def page(_: object = None) -> str:
    lines = [HEAD]
    lines += ["## Options of a worker", "", *_table(GROUPS), ""]
    lines += [
        "`make_worker_utils` takes `connection_string`, `schema`, `max_pool_size`, `prepared_statements` and "
        "`use_local_time` of these,",
        "and `pg_pool`, `hooks`, `clock` and `options`.",
        "",
        "## Further arguments of `run` and `run_once`",
        "",
        "These are objects of your program, so no file or variable can hold them.",
        "",
        "| argument | meaning |",
        "|---|---|",
        *(f"| `{name}` | {cell(meaning)} |" for name, meaning in _arguments().items()),
        "",
        "## Options of the command",
        "",
        first_paragraph(CommandLineOptions),
        "",
        *_table((("", CommandLineOptions),)),
    ]
    return "\n".join(lines) + "\n"


def _table(groups: tuple[tuple[str, type[Any]], ...]) -> list[str]:
    rows = ["| option | type | default | environment | meaning |", "|---|---|---|---|---|"]
    for prefix, cls in groups:
        texts, types = field_texts(cls), field_types(cls)
        for field in msgspec.structs.fields(cls):
            name = prefix + field.name
            variable = "GRAPHILE_WORKER_" + name.upper().replace(".", "_")
            is_group = field.name in ("local_queue", "refetch_delay")
            rows.append(
                f"| `{name}` | `{cell(types[field.name])}` | {_default(field)} "
                f"| {'' if is_group else f'`{variable}`'} | {cell(texts[field.name])} |"
            )
    return rows


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is msgspec.NODEFAULT:
        return "needed"
    if field.default is None:
        return ""
    value = field.default
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f"`{text}`"


def _arguments() -> dict[str, str]:
    taken = [
        name
        for name, parameter in inspect.signature(run).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    if set(taken) != set(ARGUMENTS):
        raise SystemExit(f"run takes {sorted(taken)}, but described are {sorted(ARGUMENTS)}")
    return {name: ARGUMENTS[name] for name in taken}
