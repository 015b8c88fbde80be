-- Make the named queues of a benchmark: "bench 0" and so on.
--
-- $1 integer  how many
-- $2 text     who has locked them, or null: they are free
insert into :GRAPHILE_WORKER_SCHEMA._private_job_queues (queue_name, locked_by, locked_at)
select 'bench ' || number::text, $2::text, case when $2 is not null then now() end
from generate_series(0, $1::integer - 1) as number
on conflict do nothing
