"""What a Rust worker 0.14 does to a database: its migrations 21 and 22, its register and its sweep.

In words of our own: the same names, signatures and effects. What its functions add_job and remove_job do
beyond ours is left out, except for what tells them apart.
"""

from __future__ import annotations

from typing import Any

from support.working import SCHEMA

REGISTER_NAMES = {
    "_private_workers",
    "_private_workers_last_heartbeat_at_idx",
    "_private_workers_pkey",
    "delete_stale_workers",
    "list_orphan_locked_workers",
    "list_stale_workers",
    "recover_dead_worker_jobs",
    "worker_deregister",
    "worker_heartbeat",
}
"""The objects of its register of workers, which we install too."""

SWEEP_LOCK = "select pg_try_advisory_xact_lock(1196905043, 1398228304)"

REGISTER = f"""
create table if not exists {SCHEMA}._private_workers (
    id text primary key,
    last_heartbeat_at timestamptz not null,
    started_at timestamptz not null default now(),
    metadata jsonb
);
create index if not exists _private_workers_last_heartbeat_at_idx
    on {SCHEMA}._private_workers (last_heartbeat_at);

create or replace function {SCHEMA}.worker_heartbeat(worker_id text, metadata json default null)
returns void language plpgsql as $$
begin
    update {SCHEMA}._private_workers as workers
    set last_heartbeat_at = now(), metadata = coalesce($2::jsonb, workers.metadata) where id = $1;
    if not found then
        insert into {SCHEMA}._private_workers (id, last_heartbeat_at, metadata) values ($1, now(), $2::jsonb);
    end if;
end $$;

create or replace function {SCHEMA}.worker_deregister(worker_id text)
returns void language plpgsql as $$
begin
    delete from {SCHEMA}._private_workers where id = worker_id;
end $$;

create or replace function {SCHEMA}.list_stale_workers(stale_threshold interval)
returns table (worker_id text) language plpgsql as $$
begin
    return query select id from {SCHEMA}._private_workers where last_heartbeat_at + stale_threshold < now();
end $$;

create or replace function {SCHEMA}.list_orphan_locked_workers(stale_threshold interval)
returns table (worker_id text) language plpgsql as $$
begin
    return query
    select locked_by from {SCHEMA}._private_jobs where locked_at + stale_threshold < now()
    union select locked_by from {SCHEMA}._private_job_queues where locked_at + stale_threshold < now()
    except select id from {SCHEMA}._private_workers;
end $$;

create or replace function {SCHEMA}.delete_stale_workers(worker_ids text[])
returns void language plpgsql as $$
begin
    delete from {SCHEMA}._private_workers where id = any (worker_ids);
end $$;
"""

RECOVER = f"""
create or replace function {SCHEMA}.recover_dead_worker_jobs(
    worker_ids text[], recovery_delay interval default interval '0')
returns integer language plpgsql as $$
declare
    job_count integer;
begin
    update {SCHEMA}._private_jobs as jobs
    set attempts = {{attempts}},
        locked_by = null, locked_at = null, run_at = greatest(run_at, now() + recovery_delay),
        last_error = 'Job recovered after worker interruption', updated_at = now()
    where locked_by = any (worker_ids);
    get diagnostics job_count = row_count;
    update {SCHEMA}._private_job_queues set locked_by = null, locked_at = null
    where locked_by = any (worker_ids);
    return job_count;
end $$;
"""

ADD_JOB_OF_RUST = f"""
do $do$
declare
    definition text := pg_get_functiondef('{SCHEMA}.add_job'::regproc);
begin
    execute replace(definition, 'declare', E'declare\\n-- raises GWNOR where no row is returned\\n');
end $do$;
"""

REVISION_21 = (
    REGISTER
    + RECOVER.format(attempts="greatest(0, attempts - 1)")
    + ADD_JOB_OF_RUST
    + f"insert into {SCHEMA}.migrations (id, breaking) values (21, false);"
)

REVISION_22 = (
    f"""
create table {SCHEMA}._private_job_retirements (
    id bigint primary key references {SCHEMA}._private_jobs (id) on delete cascade
);
create function {SCHEMA}._private_return_jobs(
    worker_id text, job_ids bigint[], recovery_delay_ms bigint, recovery_error text,
    update_recovery_metadata boolean)
returns void language sql as '';

do $do$
declare
    definition text := pg_get_functiondef('{SCHEMA}.remove_job'::regproc);
begin
    execute replace(
        definition, 'declare', E'declare\\n-- a locked job gets a row in _private_job_retirements\\n'
    );
end $do$;
"""
    + RECOVER.format(
        attempts="case when exists (select from graphile_worker._private_job_retirements as marks "
        "where marks.id = jobs.id) then attempts else greatest(0, attempts - 1) end"
    )
    + f"insert into {SCHEMA}.migrations (id, breaking) values (22, false);"
)


class RustPort:
    """A Rust worker as the database sees it, with recovery on."""

    def __init__(self, connection: Any, worker_id: str = "graphile_worker_c0ffee") -> None:
        self._connection = connection
        self.worker_id = worker_id

    async def migrate(self) -> None:
        """Apply what the ledger lacks, each revision in a transaction of its own."""
        revision = await self._connection.fetchval(f"select max(id) from {SCHEMA}.migrations")
        for number, script in ((21, REVISION_21), (22, REVISION_22)):
            if revision < number:
                async with self._connection.transaction():
                    await self._connection.execute(script)

    async def join(self, *, threshold: str = "5 minutes") -> int:
        """Migrate, register and sweep, as a worker does when it starts; the number of jobs it took."""
        await self.migrate()
        await self._connection.execute(
            f"select {SCHEMA}.worker_heartbeat($1, $2::text::json)", self.worker_id, '{"pid": 1}'
        )
        return await self.sweep(threshold=threshold)

    async def sweep(self, *, threshold: str = "5 minutes") -> int:
        """Recover the jobs of workers that are stale or unknown; how many there were."""
        async with self._connection.transaction():
            while not await self._connection.fetchval(SWEEP_LOCK):
                pass  # another worker sweeps
            stale = await self._listed("list_stale_workers", threshold)
            orphans = await self._listed("list_orphan_locked_workers", threshold)
            taken: int = await self._connection.fetchval(
                f"select {SCHEMA}.recover_dead_worker_jobs($1::text[], '30 seconds')", stale + orphans
            )
            await self._connection.execute(f"select {SCHEMA}.delete_stale_workers($1::text[])", stale)
            return taken

    async def _listed(self, function: str, threshold: str) -> list[str]:
        rows = await self._connection.fetch(
            f"select worker_id from {SCHEMA}.{function}($1::text::interval)", threshold
        )
        return [row["worker_id"] for row in rows]
