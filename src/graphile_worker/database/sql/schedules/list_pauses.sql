-- Recurring jobs that are paused.
-- Returns kind, name, reason, since and until (seconds since 1970).
select
  'schedule' as kind, identifier as name, reason,
  date_part('epoch', paused_at) as since, date_part('epoch', until) as until
from :GRAPHILE_WORKER_SCHEMA._private_py_schedule_pauses
where until is null or until > now()
order by identifier
