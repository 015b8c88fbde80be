"""The reference of SQL: functions, view and type, from the catalogue of an installed schema."""

from __future__ import annotations

import re

import asyncpg

from .members import text

LEFT_ALONE = "Skips locked jobs."
FUNCTIONS = {
    "add_job": "Add a job, or update the one with the same key; returns its row. "
    "See [adding jobs](../adding-jobs.md) and [job keys](../job-keys.md).",
    "add_jobs": "Add many jobs in one call. With `job_key_preserve_run_at`, a job that is updated by its key "
    "keeps its\n`run_at`. A key may occur once per call. `unsafe_dedupe` is not supported here.",
    "remove_job": "Delete the job with this key and return its row. A running job is not deleted: it loses "
    "its key and its\nremaining attempts. All columns are null if there is no such key.",
    "complete_jobs": f"Delete these jobs as if they had run; returns the deleted ones. {LEFT_ALONE}",
    "permanently_fail_jobs": "Fail these jobs permanently, with `error_message` as their last error. "
    f"{LEFT_ALONE}",
    "reschedule_jobs": "Change the given values of these jobs; null keeps the present value. Workers are "
    f"not notified;\nthey find the jobs at their next poll. {LEFT_ALONE}",
    "force_unlock_workers": "Unlock every job and queue that these pools have locked (ids as in "
    "`locked_by`). Attempts stay counted.\nMake sure that the pools are dead.",
}
FOR_RUST = (
    "worker_heartbeat",
    "worker_deregister",
    "list_stale_workers",
    "list_orphan_locked_workers",
    "recover_dead_worker_jobs",
    "delete_stale_workers",
)
HEAD = text("sql.md")
ERRORS = text("sql_errors.md")
RIGHTS = text("sql_rights.md")


async def page(connection: asyncpg.Connection) -> str:
    functions = await connection.fetch(
        """
        select proname as name, pg_get_function_arguments(oid) as arguments,
            pg_get_function_result(oid) as result
        from pg_proc where pronamespace = 'graphile_worker'::regnamespace
        and not proname like '\\_private\\_%' order by proname
        """
    )
    names = {row["name"] for row in functions}
    described = {*FUNCTIONS, *FOR_RUST}
    if names != described:
        raise SystemExit(f"the schema has {sorted(names)}, but described are {sorted(described)}")
    lines = [HEAD]
    for name, meaning in FUNCTIONS.items():
        row = next(row for row in functions if row["name"] == name)
        arguments = _plain(row["arguments"]).split(", ")
        lines += [f"### `{name}`", "", "```text", f"{name}("]
        lines += [f"    {argument}," for argument in arguments[:-1]] + [f"    {arguments[-1]}"]
        lines += [f") returns {_plain(row['result'])}", "```", "", meaning, ""]
    lines += [
        "### Functions for Rust workers",
        "",
        "Rust workers call these; programs do not. "
        "See [compatibility](../compatibility.md#objects-of-our-own).",
        "",
        *(f"- `{name}`" for name in FOR_RUST),
        "",
    ]
    lines += ["## The type `job_spec`", "", *await _columns(connection, "job_spec"), ""]
    lines += [
        "## The view `jobs`",
        "",
        "Read-only. It shows all jobs, without their payloads.",
        "",
        *await _columns(connection, "jobs"),
        "",
        ERRORS,
        RIGHTS,
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _plain(signature: str) -> str:
    """A signature as it is usually written."""
    plain = signature.replace("timestamp with time zone", "timestamptz").replace("SETOF", "setof")
    plain = re.sub(r"(NULL|'\w+')::\w+(\[\])?", r"\1", plain)
    return plain.replace("DEFAULT", "default").replace("NULL", "null")


async def _columns(connection: asyncpg.Connection, relation: str) -> list[str]:
    rows = await connection.fetch(
        """
        select attname as name, format_type(atttypid, atttypmod) as type from pg_attribute
        where attrelid = $1::text::regclass and attnum > 0 and not attisdropped order by attnum
        """,
        f"graphile_worker.{relation}",
    )
    return [
        "| column | type |",
        "|---|---|",
        *(f"| `{row['name']}` | {_plain(row['type'])} |" for row in rows),
    ]
