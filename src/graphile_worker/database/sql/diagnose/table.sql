-- Size and maintenance of the jobs table, for the doctor. Reads statistics only.
-- $1 the table's name with its schema, quoted.
-- Returns one row: live and dead (rows, estimated), table_bytes, index_bytes, row_bytes (average width, null if never
-- analysed), changes (rows deleted or updated since statistics began), vacuumed_ago and analysed_ago (seconds, null if
-- never), settings (text[], of this table only).
select
    coalesce(stat.n_live_tup, 0)::bigint as live,
    coalesce(stat.n_dead_tup, 0)::bigint as dead,
    pg_catalog.pg_relation_size(class.oid) as table_bytes,
    pg_catalog.pg_indexes_size(class.oid) as index_bytes,
    (
        select sum(stats.avg_width)::integer
        from pg_catalog.pg_stats as stats
        where stats.schemaname = namespace.nspname and stats.tablename = class.relname
    ) as row_bytes,
    coalesce(stat.n_tup_del + stat.n_tup_upd, 0)::bigint as changes,
    extract(epoch from now() - greatest(stat.last_vacuum, stat.last_autovacuum))::double precision as vacuumed_ago,
    extract(epoch from now() - greatest(stat.last_analyze, stat.last_autoanalyze))::double precision as analysed_ago,
    coalesce(class.reloptions, '{}') as settings
from pg_catalog.pg_class as class
join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
left join pg_catalog.pg_stat_user_tables as stat on stat.relid = class.oid
where class.oid = $1::text::regclass::oid
