-- What is paused: everything first, then tasks, then named queues.
-- Returns kind (task or queue), name (empty for every task), reason, since and until (seconds since 1970).
select
  'task' as kind, task as name, reason,
  date_part('epoch', paused_at) as since, date_part('epoch', until) as until
from :GRAPHILE_WORKER_SCHEMA._private_py_pauses
where until is null or until > now()
union all
select 'queue', queue.queue_name, paused.reason, date_part('epoch', paused.held_at), date_part('epoch', paused.until)
from :GRAPHILE_WORKER_SCHEMA._private_py_queue_holds paused
join :GRAPHILE_WORKER_SCHEMA._private_job_queues queue on queue.id = paused.queue_id
where paused.job_id is null
order by 1 desc, 2
