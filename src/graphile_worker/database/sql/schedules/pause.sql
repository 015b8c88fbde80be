-- Pause a recurring job, or change the terms of its pause. Pauses that are over are deleted.
--
-- $1 text              its identifier
-- $2 timestamptz       end of the pause, or null
-- $3 double precision  seconds until its end, or null; with neither it has no end
-- $4 text              reason, or null
-- Returns reason, since and until (seconds since 1970).
with
over as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_schedule_pauses where until <= now() and identifier <> $1::text
),
paused as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_schedule_pauses as pause (identifier, until, reason)
  values ($1::text, coalesce($2::timestamptz, now() + $3::double precision * interval '1 second'), $4::text)
  on conflict (identifier) do update set
    until = excluded.until,
    reason = excluded.reason,
    paused_at = case when pause.until <= now() then excluded.paused_at else pause.paused_at end
  returning reason, paused_at, until
)
select reason, date_part('epoch', paused_at) as since, date_part('epoch', until) as until
from paused
