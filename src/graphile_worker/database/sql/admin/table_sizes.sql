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
