-- Wake workers, as add_jobs does: jobs have become ready.
--
-- $1 integer  how many
select pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":' || $1::integer::text || '}')
