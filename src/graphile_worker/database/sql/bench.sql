-- For `graphile-worker bench`.

-- statement: clear
-- Empty the scratch schema of a benchmark between two measurements.
truncate :GRAPHILE_WORKER_SCHEMA._private_jobs, :GRAPHILE_WORKER_SCHEMA._private_job_queues

-- statement: delete_jobs
-- Delete every job of a benchmark row by row, so that dead rows are left behind.
delete from :GRAPHILE_WORKER_SCHEMA._private_jobs

-- statement: drop_schema
-- Remove the scratch schema of a benchmark and everything in it.
drop schema if exists :GRAPHILE_WORKER_SCHEMA cascade

-- statement: fill
-- Fill the scratch schema of a benchmark with jobs, past the functions and without a notification.
--
-- $1 text              task identifier
-- $2 integer           number of the first job ...
-- $3 integer           ... and of the last; the payload is {"id": number}
-- $4 double precision  seconds from now at which the first may run; the others follow a microsecond apart
-- $5 integer           the lowest priority ...
-- $6 integer           ... and over how many the jobs are spread
-- $7 integer           over how many queues they are spread (see bench_queues), 0 for none
-- $8 integer           attempts made so far
-- $9 integer           attempts at most
insert into :GRAPHILE_WORKER_SCHEMA._private_jobs
  (task_id, payload, job_queue_id, priority, run_at, attempts, max_attempts)
select
  task.id,
  pg_catalog.json_build_object('id', number),
  queue.id,
  $5::integer + number % $6::integer,
  now() + pg_catalog.make_interval(secs => $4::double precision) + number::double precision * interval '1 microsecond',
  $8::integer,
  $9::integer
from generate_series($2::integer, $3::integer) as number
join :GRAPHILE_WORKER_SCHEMA._private_tasks as task on task.identifier = $1::text
left join :GRAPHILE_WORKER_SCHEMA._private_job_queues as queue
  on queue.queue_name = case when $7::integer > 0 then 'bench ' || (number % $7::integer)::text end

-- statement: queues
-- Make the named queues of a benchmark: "bench 0" and so on.
--
-- $1 integer  how many
-- $2 text     who has locked them, or null: they are free
insert into :GRAPHILE_WORKER_SCHEMA._private_job_queues (queue_name, locked_by, locked_at)
select 'bench ' || number::text, $2::text, case when $2 is not null then now() end
from generate_series(0, $1::integer - 1) as number
on conflict do nothing

-- statement: referencing_tables
-- The tables of the schema with foreign keys to jobs and queues, such as one of the Rust port: truncate needs them, too.
--
-- $1 text  name of the schema
-- Returns their names, quoted.
select distinct pg_catalog.quote_ident(namespace.nspname::text) || '.' || pg_catalog.quote_ident(class.relname::text) as name
from pg_catalog.pg_constraint as foreign_key
join pg_catalog.pg_class as class on class.oid = foreign_key.conrelid
join pg_catalog.pg_class as target on target.oid = foreign_key.confrelid
join pg_catalog.pg_namespace as namespace
  on namespace.oid = class.relnamespace and namespace.oid = target.relnamespace
where foreign_key.contype = 'f' and namespace.nspname = $1::text
  and target.relname in ('_private_jobs', '_private_job_queues')

-- statement: server
-- What a benchmark should say about the server: its version, and settings that decide how fast it is.
select
  pg_catalog.current_setting('server_version') as version,
  pg_catalog.current_setting('fsync') as fsync,
  pg_catalog.current_setting('synchronous_commit') as synchronous_commit,
  pg_catalog.current_setting('shared_buffers') as shared_buffers

-- statement: vacuum
-- Bring the tables of a benchmark into the state in which autovacuum would leave them.
vacuum (analyze) :GRAPHILE_WORKER_SCHEMA._private_jobs, :GRAPHILE_WORKER_SCHEMA._private_job_queues
