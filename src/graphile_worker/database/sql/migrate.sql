-- What a migration asks and notes.

-- statement: add_breaking_column
-- Add the column that marks breaking revisions to an older ledger.
alter table :GRAPHILE_WORKER_SCHEMA.migrations add column if not exists breaking boolean not null default false

-- statement: add_revision
-- Add a row to the shared ledger. Its primary key serialises the installers of all runtimes.
-- Parameters: $1 revision (integer), $2 whether it is breaking (boolean).
insert into :GRAPHILE_WORKER_SCHEMA.migrations (id, breaking) values ($1::integer, $2::boolean)

-- statement: applied_own_objects
-- The numbers of the Python-only objects that were applied.
-- Result: rows with id (integer).
select id from :GRAPHILE_WORKER_SCHEMA._private_py_migrations

-- statement: bounds
-- Timeouts for a transaction that migrates. Creating an index on a large table may take longer than the role's timeouts
-- allow. Its lock_timeout stays, because it may be there to protect other sessions from this very transaction.
select
  pg_catalog.set_config('statement_timeout', '0', true),
  pg_catalog.set_config('idle_in_transaction_session_timeout', '1min', true),
  case -- not before PostgreSQL 17
    when pg_catalog.current_setting('transaction_timeout', true) is not null
      then pg_catalog.set_config('transaction_timeout', '0', true)
  end

-- statement: catalog
-- What the schema contains, from the catalogue only.
-- Parameters: $1 the schema's name (text).
-- Result: one row: server_version (integer), schema_exists (boolean), ledger_columns (text[], empty without one),
-- objects (text[], relations of any revision of the shared schema), has_own_ledger (boolean), jobs_table (bigint,
-- the oid of the jobs table; it changes when the schema is dropped and installed again), rust_marks (text[], objects by
-- which revisions of the Rust port are known; only its add_job raises GWNOR).
:include catalog

-- part: catalog
with relations as (
    select class.oid, class.relname::text as name
    from pg_catalog.pg_class as class
    join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
    where namespace.nspname = $1::text
),
functions as (
    select proc.proname::text as name, strpos(proc.prosrc, 'GWNOR') > 0 as raises_gwnor
    from pg_catalog.pg_proc as proc
    join pg_catalog.pg_namespace as namespace on namespace.oid = proc.pronamespace
    where namespace.nspname = $1::text
)
select
    pg_catalog.current_setting('server_version_num')::integer as server_version,
    exists (select from pg_catalog.pg_namespace where nspname = $1::text) as schema_exists,
    array(
        select attribute.attname::text
        from relations
        join pg_catalog.pg_attribute as attribute on attribute.attrelid = relations.oid
        where relations.name = 'migrations' and attribute.attnum > 0 and not attribute.attisdropped
        order by attribute.attnum
    ) as ledger_columns,
    array(
        select relations.name
        from relations
        where relations.name in (
            'jobs', 'job_queues', 'known_crontabs', 'job_spec',
            '_private_tasks', '_private_job_queues', '_private_jobs', '_private_known_crontabs'
        )
        order by relations.name
    ) as objects,
    exists (select from relations where relations.name = '_private_py_migrations') as has_own_ledger,
    (select relations.oid::bigint from relations where relations.name = '_private_jobs') as jobs_table,
    array(
        select relations.name from relations where relations.name in ('_private_workers', '_private_job_retirements')
        union all
        select functions.name from functions where functions.name = '_private_return_jobs'
        union all
        select 'GWNOR' from functions where functions.name = 'add_job' and functions.raises_gwnor
    ) as rust_marks

-- statement: clear_own_ledger
-- Clear the ledger of Python-only objects after a fresh install: what it lists was dropped with the old tables.
-- Result: none.
delete from :GRAPHILE_WORKER_SCHEMA._private_py_migrations

-- statement: create_schema
-- Create the schema. Run only when it is missing: the statement needs a permission that the owner of an existing
-- schema may lack.
create schema :GRAPHILE_WORKER_SCHEMA

-- statement: ledger
-- The current revision of the shared ledger.
-- Result: one row: revision, breaking_revision (integers, null when there are none), age (interval since then).
select
:include ledger

-- part: ledger
    max(id) as revision,
    max(id) filter (where breaking) as breaking_revision,
    case when isfinite(max(ts)) then clock_timestamp() - max(ts) end as age
from :GRAPHILE_WORKER_SCHEMA.migrations

-- statement: ledger_without_breaking
-- The current revision of an older ledger, which does not mark breaking revisions.
-- Result: one row: revision (integer, null when empty), age (interval since the last row).
select max(id) as revision, case when isfinite(max(ts)) then clock_timestamp() - max(ts) end as age
from :GRAPHILE_WORKER_SCHEMA.migrations

-- statement: lock
-- Serialise Python processes that migrate the same schema; released when the transaction ends.
-- Parameters: $1 the schema's name (text).
select pg_advisory_xact_lock(1735686011, hashtext($1::text))

-- statement: lock_ledger
-- Let no other runtime begin a migration before this transaction has ended: each inserts its row first. Rust's creates
-- some of the objects that ours create, too.
lock table :GRAPHILE_WORKER_SCHEMA.migrations in share mode

-- statement: mark_breaking
-- Mark the revisions of an older ledger that were breaking.
-- Parameters: $1 their numbers (integer[]).
update :GRAPHILE_WORKER_SCHEMA.migrations set breaking = true where id = any ($1::integer[])

-- statement: notify
-- Notify running workers of an applied revision.
-- Parameters: $1 the JSON text (text).
select pg_notify('worker:migrate', $1::text)

-- statement: ownership
-- Whose schema it is, for advice to a role that may not use it.
-- Parameters: $1 the schema's name (text).
-- Result: one row, or none without the schema: owner and role (names, quoted where needed), is_installed (boolean, whether it
-- has a ledger).
select
    pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(namespace.nspowner)::text) as owner,
    pg_catalog.quote_ident(current_user::text) as role,
    exists (
        select from pg_catalog.pg_class as class
        where class.relnamespace = namespace.oid and class.relname = 'migrations'
    ) as is_installed
from pg_catalog.pg_namespace as namespace
where namespace.nspname = $1::text

-- statement: whole_state
-- What `catalog` and `ledger` return and the numbers of the Python-only objects, in one round trip. Fails if one of the
-- ledgers is missing, has other columns or may not be read.
-- Parameters: $1 the schema's name (text).
-- Result: one row, with own_changes (integer[]).
:include catalog
    ,
    array(select id from :GRAPHILE_WORKER_SCHEMA._private_py_migrations) as own_changes,
:include ledger
