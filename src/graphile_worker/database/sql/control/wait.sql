-- Wait on the server.
-- $1 double precision  seconds
select pg_catalog.pg_sleep($1::double precision)
