-- Take the advisory lock of the one worker that exports the gauges about the database. It ends with the session.
--
-- $1 text  name of the schema
-- Returns whether it was free.
select pg_try_advisory_lock(hashtextextended($1::text || '/exporter', 0::bigint))
