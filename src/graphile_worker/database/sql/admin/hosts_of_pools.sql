-- The hosts and process ids of worker pools, the newest first.
select worker.id, worker.host, worker.pid
from :GRAPHILE_WORKER_SCHEMA._private_py_workers as worker
order by worker.started_at desc
limit 500
