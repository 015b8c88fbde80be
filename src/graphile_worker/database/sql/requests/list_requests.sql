-- Worker pools that were asked to stop or to be quiet.
-- Returns pool_id, kind, reason, asked_at (seconds since 1970).
select pool_id, kind, reason, date_part('epoch', asked_at) as asked_at
from :GRAPHILE_WORKER_SCHEMA._private_py_requests
where kind <> 'stack'
order by id
