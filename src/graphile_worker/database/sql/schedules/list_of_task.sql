-- Recurring jobs of one task, as the worker that started last defines each. Needs own_objects/0018_schedules.
--
-- $1 text     task identifier
-- $2 integer  how many at most
select distinct on (schedule.identifier) schedule.identifier, schedule.pattern, schedule.zone
from :GRAPHILE_WORKER_SCHEMA._private_py_schedules schedule
join :GRAPHILE_WORKER_SCHEMA._private_py_workers worker on worker.id = schedule.pool_id
where schedule.task = $1::text
order by schedule.identifier, worker.started_at desc
limit $2::integer
