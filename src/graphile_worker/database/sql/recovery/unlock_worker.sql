-- Release the advisory lock that proves a worker pool alive.
--
-- $1 text  name of the schema
-- $2 text  pool id
select pg_advisory_unlock(hashtextextended($1::text || '/' || $2::text, 0::bigint))
