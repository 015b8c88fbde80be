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
