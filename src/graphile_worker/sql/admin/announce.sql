-- Wake workers: jobs have become ready. As add_jobs does it.
-- $1 how many.
select pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":' || $1::integer::text || '}')
