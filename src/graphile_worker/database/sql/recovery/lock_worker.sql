-- Take the advisory lock that proves a worker pool alive. It ends with the session.
--
-- $1 text  name of the schema
-- $2 text  pool id
-- Returns whether it was free.
select pg_try_advisory_lock(hashtextextended($1::text || '/' || $2::text, 0::bigint))
