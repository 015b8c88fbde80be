-- Whether a job of a named queue may be next, so that get_plain_jobs locks none.
--
-- $1 text         ids of the tasks that this pool can run
-- $2 text[]       forbidden flags, or null
-- $3 timestamptz  the worker's time, or null for the server's
with recursive
task (ids) as materialized (select $1::text::integer[]),
term (flags, moment) as materialized (select $2::text[], coalesce($3::timestamptz, now())),
:include free_queues
select may_be_next from queues
