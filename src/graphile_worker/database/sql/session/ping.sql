-- Notify one channel with an empty payload.
--
-- $1 text  channel
select pg_notify($1::text, '')
