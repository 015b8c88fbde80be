"""The reference of options: every field of the option classes, and the other arguments of `run`."""

from __future__ import annotations

from typing import Any

import msgspec

from graphile_worker.config.process_options import ProcessOptions
from graphile_worker.config.settings import AdminOptions
from graphile_worker.runner.arguments import RunOnceArguments, WorkerArguments
from graphile_worker.values.options import LocalQueueOptions, RefetchDelayOptions, WorkerOptions

from .members import cell, field_texts, field_types, first_paragraph, text

GROUPS = (
    ("", WorkerOptions),
    ("local_queue.", LocalQueueOptions),
    ("local_queue.refetch_delay.", RefetchDelayOptions),
)
HEAD = text("options.md")
NESTED = "`local_queue` is a `LocalQueueOptions`, its `refetch_delay` a `RefetchDelayOptions`."


def page(_: object = None) -> str:
    lines = [HEAD]
    lines += ["## Options of a worker", "", NESTED, "", *_table(GROUPS), ""]
    lines += [
        "`make_worker_utils` takes `connection_string`, `schema`, `max_pool_size`, `prepared_statements` and "
        "`use_local_time` of these,",
        "and `pg_pool`, `events`, `hooks`, `plugins`, `clock` and `options`.",
        "",
        "## Further arguments of `run` and `run_once`",
        "",
        "These are objects of your program, so no file and no environment variable can hold them.",
        "",
        "| argument | meaning |",
        "|---|---|",
        *(f"| `{name}` | {cell(meaning)} |" for name, meaning in _arguments().items()),
        "",
        "## Options of the command and of `serve`",
        "",
        first_paragraph(ProcessOptions),
        "",
        *_table((("", ProcessOptions),)),
        "",
        "## Options of the dashboard",
        "",
        first_paragraph(AdminOptions),
        "",
        *_table((("admin.", AdminOptions),)),
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
    if field.default_factory is not msgspec.NODEFAULT or field.default is None:
        return ""
    if field.default is msgspec.NODEFAULT:
        return "required"
    value = field.default
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f"`{text}`" if text else ""


def _arguments() -> dict[str, str]:
    return field_texts(RunOnceArguments) | field_texts(WorkerArguments)
