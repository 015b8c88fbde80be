-- The tracks of wide queues.
--
-- $1 integer[]  ids of the queues
-- Returns id, and home_id (the queue that it is a track of).
select track.queue_id as id, track.home_id
from :GRAPHILE_WORKER_SCHEMA._private_py_tracks as track
where track.home_id = any ($1::integer[])
