-- The names of the tracks of a wide queue that may take jobs.
-- $1 text  name of the queue
select queue.queue_name
from :GRAPHILE_WORKER_SCHEMA._private_job_queues home
join :GRAPHILE_WORKER_SCHEMA._private_py_tracks track on track.home_id = home.id
join :GRAPHILE_WORKER_SCHEMA._private_job_queues queue on queue.id = track.queue_id
where home.queue_name = $1::text and not track.is_closed
order by track.queue_id
