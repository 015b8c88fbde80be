"""The reference of SQL: functions, the view and the type as the catalogue of an installed schema has them."""

from __future__ import annotations

import re

import asyncpg

FUNCTIONS = {
    "add_job": "Add one job, or change the one with the same key; returns its row. See "
    "[adding jobs](../adding-jobs.md) and [job keys](../job-keys.md).",
    "add_jobs": "Add many jobs in one call. With `job_key_preserve_run_at`, jobs that a key finds waiting keep their "
    "time. A key may occur once per call. `unsafe_dedupe` is not possible here.",
    "remove_job": "Delete the job with this key and return its row. A job that is running is not deleted: it loses its "
    "key and its further attempts. All columns are null if there is no such key.",
    "complete_jobs": "Delete these jobs as if they had run; returns those that were deleted. Locked jobs are left alone.",
    "permanently_fail_jobs": "Give these jobs up: no attempts left, `error_message` as their last error. Locked jobs are "
    "left alone.",
    "reschedule_jobs": "Change what is given on these jobs; null leaves it as it is. Workers are not notified, they find "
    "the jobs at their next poll. Locked jobs are left alone.",
    "force_unlock_workers": "Unlock every job and queue that these pools hold, by their `locked_by`. Their attempts stay "
    "counted. Be sure that the pools are dead.",
}
HEAD = """\
# SQL

The schema is `graphile_worker` unless you chose another name; it is the same one that Graphile Worker for Node
installs. Call the functions with named arguments (`priority => -10`); leave out what you do not need. They may be
called in triggers and in any transaction; workers see the job when it commits.

```sql
select graphile_worker.add_job('send_email', json_build_object('to', 'ada@example.com'), max_attempts => 5);

select graphile_worker.add_jobs(array[
    row('send_email', '{"to": "b@example.com"}', null, null, null, null, null, null),
    row('send_email', '{"to": "c@example.com"}', 'mail', now() + interval '1 hour', 3, null, 10, null)
]::graphile_worker.job_spec[]);
```

"Locked" below means locked within the last four hours: an older lock is of a worker that is gone.

## Functions
"""
RIGHTS = """\
## Rights

All objects belong to the role that installed the schema, and row security is on: another role can neither see jobs
in the tables nor add any, even with grants. Connect workers and clients as the owner, or give other roles a function of
your own that runs with its owner's rights:

```sql
create function request_report(month date) returns void
language sql security definer set search_path = pg_catalog, pg_temp
as $$
    select graphile_worker.add_job('report', json_build_object('month', month));
$$;
```

Only the functions, the view and the type on this page are for you. Names that begin with `_private_` may change
with any version, and an `insert` there would not wake a worker.
"""


async def page(connection: asyncpg.Connection) -> str:
    functions = await connection.fetch(
        """
        select proname as name, pg_get_function_arguments(oid) as arguments, pg_get_function_result(oid) as result
        from pg_proc where pronamespace = 'graphile_worker'::regnamespace
        and not proname like '\\_private\\_%' order by proname
        """
    )
    names = {row["name"] for row in functions}
    if names != set(FUNCTIONS):
        raise SystemExit(f"the schema has {sorted(names)}, but described are {sorted(FUNCTIONS)}")
    lines = [HEAD]
    for name, text in FUNCTIONS.items():
        row = next(row for row in functions if row["name"] == name)
        arguments = _plain(row["arguments"]).split(", ")
        lines += [f"### `{name}`", "", "```text", f"{name}("]
        lines += [f"    {argument}," for argument in arguments[:-1]] + [f"    {arguments[-1]}"]
        lines += [f") returns {_plain(row['result'])}", "```", "", text, ""]
    lines += ["## The type `job_spec`", "", *await _columns(connection, "job_spec"), ""]
    lines += [
        "## The view `jobs`",
        "",
        "For looking, not for changing. It shows all jobs but not their payloads.",
        "",
        *await _columns(connection, "jobs"),
        "",
        "```sql",
        "select task_identifier, count(*) from graphile_worker.jobs where attempts = max_attempts group by 1;",
        "```",
        "",
        RIGHTS,
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _plain(text: str) -> str:
    """A signature as people write it."""
    text = text.replace("timestamp with time zone", "timestamptz").replace("SETOF", "setof")
    text = re.sub(r"(NULL|'\w+')::\w+(\[\])?", r"\1", text)
    return text.replace("DEFAULT", "default").replace("NULL", "null")


async def _columns(connection: asyncpg.Connection, relation: str) -> list[str]:
    rows = await connection.fetch(
        """
        select attname as name, format_type(atttypid, atttypmod) as type from pg_attribute
        where attrelid = $1::text::regclass and attnum > 0 and not attisdropped order by attnum
        """,
        f"graphile_worker.{relation}",
    )
    return ["| column | type |", "|---|---|", *(f"| `{row['name']}` | {_plain(row['type'])} |" for row in rows)]
