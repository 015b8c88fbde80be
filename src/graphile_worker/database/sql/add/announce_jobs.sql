-- Wake workers, as add_jobs does: jobs are ready that are not new, so their run_at may be long ago. Workers with
-- watermarks read from the start.
--
-- $1 integer  how many
select pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":' || $1::integer::text || ',"freed":true}')
