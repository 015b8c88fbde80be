-- The hosts of worker pools.
select worker.id, worker.host
from :GRAPHILE_WORKER_SCHEMA._private_py_workers as worker
order by worker.started_at desc
limit 500
