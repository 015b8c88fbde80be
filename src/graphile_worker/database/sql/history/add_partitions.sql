-- Make the partitions for what is kept from today until some days from now.
--
-- $1 text      the table, quoted
-- $2 float8[]  seconds to keep rows
-- $3 integer   days ahead
-- Returns the number of partitions that were missing.
select count(*) filter (
  where :GRAPHILE_WORKER_SCHEMA._private_py_add_partition($1::text::regclass, day.day)
) as added
from (
  select distinct
:include expires_on
    as day
  from (
    select kept.keep_seconds, now() + interval '1 day' * ahead.days::double precision as kept_at
    from pg_catalog.unnest($2::double precision[]) as kept (keep_seconds)
    cross join generate_series(0, $3::integer) as ahead (days)
  ) term
) day
