-- The tables of the schema, the largest first; a partitioned table with its partitions. Sizes are those of the last vacuum
-- or analyze: measuring would open every table and index, and wait for those that are locked.
--
-- $1 text  name of the schema
-- Returns name, bytes (with indexes) and rows; both are estimates, null if the server has none.
with tables as (
  select
    coalesce(parent.relname, class.relname)::text as name,
    class.relpages::bigint
    + coalesce((
      select sum(part.relpages)
      from pg_catalog.pg_class as part
      where part.oid = class.reltoastrelid
      or part.oid = any (array(
        select index.indexrelid
        from pg_catalog.pg_index as index
        where index.indrelid = class.oid or index.indrelid = class.reltoastrelid
      ))
    ), 0::bigint) as pages,
    class.reltuples >= 0::real as is_known,
    class.reltuples as rows
  from pg_catalog.pg_class as class
  join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
  left join pg_catalog.pg_inherits as inherits on inherits.inhrelid = class.oid
  left join pg_catalog.pg_class as parent on parent.oid = inherits.inhparent
  where namespace.nspname = $1::text and class.relkind = 'r'::"char"
)
select
  name,
  (sum(pages) filter (where is_known) * current_setting('block_size')::numeric)::bigint as bytes,
  (sum(rows) filter (where is_known))::bigint as rows
from tables
group by name
order by bytes desc nulls last, name
limit 100
