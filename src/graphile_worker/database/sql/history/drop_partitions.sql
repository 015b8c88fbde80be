-- Drop the partitions of a table whose rows have expired.
--
-- $1 text  the table, quoted
select :GRAPHILE_WORKER_SCHEMA._private_py_drop_partitions($1::text::regclass, (now() at time zone 'UTC')::date)
