-- Tell a listener that announcements arrive.
--
-- $1 text  channel
-- $2 text  a token by which the sender knows its own
select pg_notify($1::text, pg_catalog.json_build_object('ping', $2::text)::text)
