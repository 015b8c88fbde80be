-- The tables of the schema, the largest first; a partitioned table with its partitions.
--
-- $1 text  name of the schema
-- Returns name, bytes (with indexes) and rows (an estimate, or null).
with tables as (
  select
    coalesce(parent.relname, class.relname)::text as name,
    pg_catalog.pg_total_relation_size(class.oid) as bytes,
    case when class.reltuples >= 0::real then class.reltuples end as rows
  from pg_catalog.pg_class class
  join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
  left join pg_catalog.pg_inherits inherits on inherits.inhrelid = class.oid
  left join pg_catalog.pg_class parent on parent.oid = inherits.inhparent
  where namespace.nspname = $1::text and class.relkind = 'r'::"char"
)
select name, sum(bytes)::bigint as bytes, sum(rows)::bigint as rows
from tables
group by name
order by sum(bytes) desc, name
limit 100
