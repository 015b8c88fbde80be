-- What is counted per minute, hour and day.

-- statement: write_minutes
-- Add what a pool has counted since it wrote last.
--
-- $1 text                 pool id
-- $2 double precision[]   minutes, in seconds since 1970
-- $3 text[]               tasks
-- $4 integer[]            completed
-- $5 integer[]            failed
-- $6 integer[]            permanently failed
-- $7 double precision[]   run seconds
-- $8 double precision[]   wait seconds
-- $9 double precision[]   longest
-- $10 text[]              histograms of run times, as text
-- $11 text[]              histograms of wait times, as text
-- $12 double precision    the time by the clock of the minutes, or null if that is the server's
-- Does not wait for the commit to reach the disk: a crash may lose the last seconds anyway.
insert into :GRAPHILE_WORKER_SCHEMA._private_py_minutes as total
  (minute, task, pool_id, completed, failed, permanently_failed, run_seconds, wait_seconds, longest, run_times, wait_times)
select
  to_timestamp(
    round((each.minute + clock.difference) / 60::double precision) * 60::double precision
  ), each.task, $1::text, each.completed, each.failed, each.permanently_failed,
  each.run_seconds, each.wait_seconds, each.longest, each.run_times::integer[], each.wait_times::integer[]
from (select pg_catalog.set_config('synchronous_commit', 'off', true)) setting
cross join (
  select coalesce(date_part('epoch', now()) - $12::double precision, 0::double precision) as difference
) clock
cross join unnest(
  $2::double precision[], $3::text[], $4::integer[], $5::integer[], $6::integer[],
  $7::double precision[], $8::double precision[], $9::double precision[], $10::text[], $11::text[]
) as each (
  minute, task, completed, failed, permanently_failed, run_seconds, wait_seconds, longest, run_times, wait_times
)
order by each.minute, each.task
on conflict (minute, task, pool_id)
:include added_statistics

-- statement: read_minutes
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

-- statement: read_hours
-- Statistics from the hours, and from the minutes that are not folded into them yet.
--
-- $1 timestamptz       from this hour
-- $2 timestamptz       to this time, exclusive; or null
-- $3 text              task, or null for all
-- $4 double precision  seconds of a step: 3600 or 86400; or null for one step
-- $5 boolean           by task
-- Returns start (seconds since 1970) and task, each null unless asked for, pool_id (null), and the sums.
with counted as (
:include folded_hours
  where hours.hour >= $1::timestamptz
  and hours.hour < coalesce($2::timestamptz, 'infinity'::timestamptz)
  and ($3::text is null or hours.task = $3::text)
  union all
:include unfolded_minutes
)
:include statistics_by_step

-- statement: read_days
-- Statistics of a period with whole days: these from the days that are folded, the rest from the hours, and from the minutes
-- that are not folded into them yet.
--
-- $1 timestamptz       from this hour
-- $2 timestamptz       to this time, exclusive; or null
-- $3 text              task, or null for all
-- $4 double precision  seconds of a step: 86400; or null for one step
-- $5 boolean           by task
-- $6 timestamptz       the first whole day
-- $7 timestamptz       the end of the last whole day; or null
-- Returns start (seconds since 1970) and task, each null unless asked for, pool_id (null), and the sums.
with
:include folded_until
,
whole as (
  select least(folded.until, coalesce($7::timestamptz, 'infinity'::timestamptz)) as until
  from folded
),
counted as (
  select
    days.day as at, days.task, days.completed, days.failed, days.permanently_failed,
    days.run_seconds, days.wait_seconds, days.longest, days.run_times, days.wait_times
  from :GRAPHILE_WORKER_SCHEMA._private_py_days as days
  where days.day >= $6::timestamptz
  and days.day < (select whole.until from whole)
  and ($3::text is null or days.task = $3::text)
  union all
:include folded_hours
  where hours.hour >= $1::timestamptz
  and hours.hour < $6::timestamptz
  and ($3::text is null or hours.task = $3::text)
  union all
:include folded_hours
  where hours.hour >= (select greatest(whole.until, $6::timestamptz) from whole)
  and hours.hour < coalesce($2::timestamptz, 'infinity'::timestamptz)
  and ($3::text is null or hours.task = $3::text)
  union all
:include unfolded_minutes
)
:include statistics_by_step

-- statement: has_statistics
-- Whether the tables with statistics exist.
--
-- $1 text  name of the schema
-- Returns has_statistics, and has_days: whether there is a table of days that this role may read.
select
  pg_catalog.bool_and(found.name is not null) filter (where found.position < 4) as has_statistics,
  pg_catalog.bool_and(coalesce(has_table_privilege(found.name::oid, 'select'::text), false))
    filter (where found.position = 4) as has_days
from (
  select to_regclass(pg_catalog.format('%I.%I', $1::text, wanted.name)) as name, wanted.position
  from (
    values
      ('_private_py_minutes'::text, 1), ('_private_py_hours', 2), ('_private_py_samples', 3), ('_private_py_days', 4)
  ) as wanted (name, position)
) as found

-- statement: has_days
-- Whether the table of days exists, and whether this role may fold hours into it.
--
-- $1 text  name of the schema
select coalesce(
  has_table_privilege(wanted.days::oid, 'select'::text)
  and has_table_privilege(wanted.days::oid, 'insert'::text)
  and has_table_privilege(wanted.days::oid, 'update'::text)
  and has_table_privilege(wanted.days::oid, 'delete'::text),
  false
)
from (select to_regclass(pg_catalog.format('%I._private_py_days', $1::text)) as days) as wanted

-- part: added_statistics
-- Add statistics to a row that exists; the table is called `total`. Arrays of different lengths are added from the left.
do update set
  completed = total.completed + excluded.completed,
  failed = total.failed + excluded.failed,
  permanently_failed = total.permanently_failed + excluded.permanently_failed,
  run_seconds = total.run_seconds + excluded.run_seconds,
  wait_seconds = total.wait_seconds + excluded.wait_seconds,
  longest = greatest(total.longest, excluded.longest),
  run_times = (
    select pg_catalog.array_agg(coalesce(each.old, 0) + coalesce(each.new, 0) order by each.bucket)
    from unnest(total.run_times, excluded.run_times) with ordinality as each (old, new, bucket)
  ),
  wait_times = (
    select pg_catalog.array_agg(coalesce(each.old, 0) + coalesce(each.new, 0) order by each.bucket)
    from unnest(total.wait_times, excluded.wait_times) with ordinality as each (old, new, bucket)
  )

-- part: summed_statistics
  -- The sums of all rows of `counted`. One sum for each of the 28 buckets is several times as fast as `unnest`. Buckets
  -- that no row has are null, and only at the end.
  sum(counted.completed)::bigint as completed,
  sum(counted.failed)::bigint as failed,
  sum(counted.permanently_failed)::bigint as permanently_failed,
  sum(counted.run_seconds) as run_seconds,
  sum(counted.wait_seconds) as wait_seconds,
  max(counted.longest) as longest,
  pg_catalog.array_remove(array[
    sum(counted.run_times[1])::bigint, sum(counted.run_times[2])::bigint, sum(counted.run_times[3])::bigint, sum(counted.run_times[4])::bigint,
    sum(counted.run_times[5])::bigint, sum(counted.run_times[6])::bigint, sum(counted.run_times[7])::bigint, sum(counted.run_times[8])::bigint,
    sum(counted.run_times[9])::bigint, sum(counted.run_times[10])::bigint, sum(counted.run_times[11])::bigint, sum(counted.run_times[12])::bigint,
    sum(counted.run_times[13])::bigint, sum(counted.run_times[14])::bigint, sum(counted.run_times[15])::bigint, sum(counted.run_times[16])::bigint,
    sum(counted.run_times[17])::bigint, sum(counted.run_times[18])::bigint, sum(counted.run_times[19])::bigint, sum(counted.run_times[20])::bigint,
    sum(counted.run_times[21])::bigint, sum(counted.run_times[22])::bigint, sum(counted.run_times[23])::bigint, sum(counted.run_times[24])::bigint,
    sum(counted.run_times[25])::bigint, sum(counted.run_times[26])::bigint, sum(counted.run_times[27])::bigint, sum(counted.run_times[28])::bigint
  ], null) as run_times,
  pg_catalog.array_remove(array[
    sum(counted.wait_times[1])::bigint, sum(counted.wait_times[2])::bigint, sum(counted.wait_times[3])::bigint, sum(counted.wait_times[4])::bigint,
    sum(counted.wait_times[5])::bigint, sum(counted.wait_times[6])::bigint, sum(counted.wait_times[7])::bigint, sum(counted.wait_times[8])::bigint,
    sum(counted.wait_times[9])::bigint, sum(counted.wait_times[10])::bigint, sum(counted.wait_times[11])::bigint, sum(counted.wait_times[12])::bigint,
    sum(counted.wait_times[13])::bigint, sum(counted.wait_times[14])::bigint, sum(counted.wait_times[15])::bigint, sum(counted.wait_times[16])::bigint,
    sum(counted.wait_times[17])::bigint, sum(counted.wait_times[18])::bigint, sum(counted.wait_times[19])::bigint, sum(counted.wait_times[20])::bigint,
    sum(counted.wait_times[21])::bigint, sum(counted.wait_times[22])::bigint, sum(counted.wait_times[23])::bigint, sum(counted.wait_times[24])::bigint,
    sum(counted.wait_times[25])::bigint, sum(counted.wait_times[26])::bigint, sum(counted.wait_times[27])::bigint, sum(counted.wait_times[28])::bigint
  ], null) as wait_times

-- part: statistics_by_step
-- $4: seconds of a step, or null for one step; $5: by task.
select
  case
    when $4::double precision is not null
      then floor(date_part('epoch', counted.at) / $4::double precision) * $4::double precision
  end as start,
  case when $5::boolean then counted.task end as task,
  null::text as pool_id,
:include summed_statistics
from counted
group by 1, 2
order by 1, 2

-- part: folded_hours
  select
    hours.hour as at, hours.task, hours.completed, hours.failed, hours.permanently_failed,
    hours.run_seconds, hours.wait_seconds, hours.longest, hours.run_times, hours.wait_times
  from :GRAPHILE_WORKER_SCHEMA._private_py_hours as hours

-- part: unfolded_minutes
  -- $1, $2 and $3: from, to and task, as for the hours.
  select
    minutes.minute, minutes.task, minutes.completed::bigint, minutes.failed::bigint, minutes.permanently_failed::bigint,
    minutes.run_seconds, minutes.wait_seconds, minutes.longest,
    minutes.run_times::bigint[], minutes.wait_times::bigint[]
  from :GRAPHILE_WORKER_SCHEMA._private_py_minutes as minutes
  where minutes.pool_id <> ''
  and minutes.minute >= $1::timestamptz
  and minutes.minute < coalesce($2::timestamptz, 'infinity'::timestamptz)
  and ($3::text is null or minutes.task = $3::text)
