-- The jobs table as the server's statistics see it.
--
-- $1 text  the table, with its schema, quoted
-- Returns bytes (with indexes) and dead_rows.
select
  pg_catalog.pg_total_relation_size($1::text::regclass) as bytes,
  pg_stat_get_dead_tuples($1::text::regclass::oid) as dead_rows
