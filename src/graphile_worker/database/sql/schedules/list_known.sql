-- The same as schedules/list where only the shared tables exist.
select
  identifier,
  date_part('epoch', known_since) as known_since,
  date_part('epoch', last_execution) as last_execution,
  null::text as definitions, null::text as job_ids, null::text as due_at,
  null::double precision as paused_at, null::double precision as until, null::text as reason, false as is_paused
from :GRAPHILE_WORKER_SCHEMA._private_known_crontabs
where ($1::text is null or identifier = $1::text) and ($2::text is null or identifier > $2::text)
order by identifier
limit $3::integer
