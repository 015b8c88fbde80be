-- What the schema contains, from the catalogue only.
-- Parameters: $1 the schema's name (text).
-- Result: one row: server_version (integer), schema_exists (boolean), ledger_columns (text[], empty without one),
-- objects (text[], relations of any revision of the shared schema), has_own_ledger (boolean), jobs_table (bigint,
-- the oid of the jobs table; it changes when the schema is dropped and installed again), rust_marks (text[], objects by
-- which revisions of the Rust port are known; only its add_job raises GWNOR).
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
