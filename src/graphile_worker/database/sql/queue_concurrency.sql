-- Wide queues.

-- statement: list_tracks
-- The names of the tracks of a wide queue that may take jobs.
-- $1 text  name of the queue
select queue.queue_name
from :GRAPHILE_WORKER_SCHEMA._private_job_queues home
join :GRAPHILE_WORKER_SCHEMA._private_py_tracks track on track.home_id = home.id
join :GRAPHILE_WORKER_SCHEMA._private_job_queues queue on queue.id = track.queue_id
where home.queue_name = $1::text and not track.is_closed
order by track.queue_id

-- statement: set_tracks
-- Give queues as many tracks as their concurrency asks for; see own_objects/tracks.
-- $1 integer[]  ids of queues or of their tracks
-- $2 integer[]  concurrency of each, null to leave one as it is; those that were set by hand count first
-- Returns how many tracks were made and closed.
select :GRAPHILE_WORKER_SCHEMA._private_py_set_tracks($1::integer[], $2::integer[])

-- statement: set_queue_concurrency
-- Set the concurrency of a named queue by hand, or with null forget that it was set. The queue is created if there is none.
--
-- $1 text     queue name
-- $2 integer  concurrency, or null
-- Returns the id of the queue.
with
forgotten as (
    delete from :GRAPHILE_WORKER_SCHEMA._private_py_queue_widths
    where queue_name = $1::text and $2::integer is null
),
remembered as (
    insert into :GRAPHILE_WORKER_SCHEMA._private_py_queue_widths (queue_name, width)
    select $1::text, $2::integer where $2::integer is not null
    on conflict (queue_name) do update set width = excluded.width
),
known as (
    select id from :GRAPHILE_WORKER_SCHEMA._private_job_queues where queue_name = $1::text
),
created as (
    insert into :GRAPHILE_WORKER_SCHEMA._private_job_queues as queue (queue_name)
    select $1::text where not exists (select from known)
    on conflict (queue_name) do update set queue_name = excluded.queue_name
    returning id
)
select id from known
union all
select id from created
