-- What the dashboard knows about the server and the schema.

-- statement: server
-- The server, the database and the role of this connection.
-- Returns version, database, role.
select
  pg_catalog.current_setting('server_version') as version,
  current_database()::text as database,
  current_user::text as role

-- statement: server_start
-- When the server was started.
select pg_postmaster_start_time()

-- statement: ready
-- Whether the schema is installed; needs no privilege on its tables.
--
-- $1 text  the qualified name of the jobs table
-- returns one row: is_installed
select pg_catalog.to_regclass($1::text) is not null as is_installed

-- statement: has_tables
-- Whether the tables of the dashboard exist, and whether this role may write to them. Without a policy, row security
-- lets only the owner see and add rows.
-- $1 the name of the audit table with its schema, quoted.
-- Returns one row: has_tables, may_read, may_write.
select
    found.id is not null as has_tables,
    coalesce(pg_catalog.has_table_privilege(found.id, 'select'), false) as may_read,
    coalesce(pg_catalog.has_table_privilege(found.id, 'insert'), false)
        and not coalesce(pg_catalog.row_security_active(found.id), false) as may_write
from (select pg_catalog.to_regclass($1::text)::oid as id) as found

-- statement: own_tables
-- Which of the Python-only tables exist and may be read by this role.
--
-- $1 text  name of the schema
-- Returns name.
select class.relname::text as name
from pg_catalog.pg_class as class
join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
where namespace.nspname = $1::text
and class.relname ~ '^_private_py_'::text
and class.relkind = any (array['r', 'p']::"char"[])
and not class.relispartition
and has_table_privilege(class.oid, 'select'::text)

-- statement: table_sizes
-- The tables of the schema, the largest first; a partitioned table with its partitions. Sizes are those of the last vacuum
-- or analyze: measuring would open every table and index, and wait for those that are locked.
--
-- pg_class and pg_index are read once, not once for each table: finding the tables of a schema reads pg_class anyway, since it
-- has no index for that.
--
-- $1 text  name of the schema
-- Returns name, bytes (with indexes) and rows; both are estimates, null if the server has none.
with relations as materialized (
  select class.oid, class.relname, class.relkind, class.relpages, class.reltuples, class.reltoastrelid
  from pg_catalog.pg_class as class
  join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
  where namespace.nspname = $1::text or namespace.nspname = 'pg_toast'::text
),
indexes as materialized (
  select index.indrelid, sum(relation.relpages) as pages
  from pg_catalog.pg_index as index
  join relations as relation on relation.oid = index.indexrelid
  group by index.indrelid
),
tables as (
  select
    coalesce(parent.relname, relation.relname)::text as name,
    relation.relpages::bigint + coalesce(own.pages, 0::bigint)
    + coalesce(toast.relpages, 0)::bigint + coalesce(of_toast.pages, 0::bigint) as pages,
    relation.reltuples >= 0::real as is_known,
    relation.reltuples as rows
  from relations as relation
  left join indexes as own on own.indrelid = relation.oid
  left join relations as toast on toast.oid = relation.reltoastrelid
  left join indexes as of_toast on of_toast.indrelid = toast.oid
  left join pg_catalog.pg_inherits as inherits on inherits.inhrelid = relation.oid
  left join relations as parent on parent.oid = inherits.inhparent
  where relation.relkind = 'r'::"char"
)
select
  name,
  (sum(pages) filter (where is_known) * pg_catalog.current_setting('block_size')::numeric)::bigint as bytes,
  (sum(rows) filter (where is_known))::bigint as rows
from tables
group by name
order by bytes desc nulls last, name
limit 100

-- statement: hosts_of_pools
-- The hosts and process ids of worker pools, the newest first.
select worker.id, worker.host, worker.pid
from :GRAPHILE_WORKER_SCHEMA._private_py_workers as worker
order by worker.started_at desc
limit 500
