-- Release the advisory lock that proves a worker pool alive.
--
-- $1 text  name of the schema
-- $2 text  pool id
select pg_advisory_unlock(hashtextextended($1 || '/' || $2, 0::bigint))
