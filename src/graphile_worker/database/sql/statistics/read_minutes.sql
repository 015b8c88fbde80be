-- Statistics from the minutes: of pools, and folded.
--
-- $1 timestamptz  from this minute
-- $2 timestamptz  to this time, exclusive; or null
-- $3 text         task, or null for all
-- $4 boolean      by minute
-- $5 boolean      by task
-- $6 boolean      by pool; minutes that are folded have an empty pool_id
-- Returns start (seconds since 1970), task and pool_id, each null unless asked for, and the sums.
select
  case when $4::boolean then date_part('epoch', counted.minute) end as start,
  case when $5::boolean then counted.task end as task,
  case when $6::boolean then counted.pool_id end as pool_id,
:include summed_statistics
from :GRAPHILE_WORKER_SCHEMA._private_py_minutes as counted
where counted.minute >= $1::timestamptz
and counted.minute < coalesce($2::timestamptz, 'infinity'::timestamptz)
and ($3::text is null or counted.task = $3::text)
group by 1, 2, 3
order by 1, 2, 3
