-- The size of the jobs table, to decide whether to count or to estimate.
-- $1 the table's name with its schema, quoted.
-- Returns the number of its pages.
select pg_catalog.pg_relation_size($1::text::regclass) / pg_catalog.current_setting('block_size')::bigint as pages
