"""Bringing an installed schema back to what Node had at an earlier revision."""

from __future__ import annotations

from typing import Any

TRIGGER = """
create function graphile_worker.tg_jobs__after_insert() returns trigger language plpgsql as $$
begin
    perform pg_notify('jobs:insert', '');
    return new;
end;
$$;
create trigger _900_after_insert after insert on graphile_worker._private_jobs
    for each statement execute procedure graphile_worker.tg_jobs__after_insert();
"""

SILENT_FUNCTIONS = """
create or replace function graphile_worker.remove_job(job_key text)
returns graphile_worker._private_jobs language plpgsql strict as $$
begin
    return null;
end;
$$;
"""

MARKED_FUNCTION = """
create or replace function graphile_worker.add_jobs(
    specs graphile_worker.job_spec[], job_key_preserve_run_at boolean default false)
returns setof graphile_worker._private_jobs language plpgsql as $$
begin
    raise exception 'the body of an earlier revision';
end;
$$;
"""


async def go_back(connection: Any, revision: int) -> None:
    """Undo what revisions 17 to 20 did, down to `revision`; older bodies of functions are only hinted at."""
    await connection.execute(MARKED_FUNCTION)
    if revision < 18:
        await connection.execute(TRIGGER + SILENT_FUNCTIONS)
    if revision < 17:
        await connection.execute("drop view graphile_worker.jobs")
    await connection.execute("delete from graphile_worker.migrations where id > $1", revision)
    await connection.execute("update graphile_worker.migrations set ts = now() - interval '1 year'")
