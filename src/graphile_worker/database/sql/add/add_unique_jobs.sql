-- Add many jobs that are unique by their arguments, unless there are such jobs. Specs with the same key get the same job.
-- $1 to $9: see add_jobs, every spec with a key; $10 while which a job with the key counts.
-- Returns the jobs' columns in the order of Job, without the task identifier, and whether each is new. In the order of the
-- keys the calls wait for others that add the same jobs, and do not deadlock.
with spec as materialized (
    select *
    from unnest(
        $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[]
    ) with ordinality as spec
        (identifier, payload, queue_name, run_at, delay, max_attempts, job_key, priority, flags, place)
    order by 7, 10
),
added as materialized (
    select spec.place, done.job, done.is_new
    from spec
    cross join lateral :GRAPHILE_WORKER_SCHEMA._private_py_add_unique_job(
        spec.identifier,
        spec.payload::json,
        spec.queue_name,
        coalesce(spec.run_at::timestamptz, now() + pg_catalog.make_interval(secs => spec.delay::float8)),
        spec.max_attempts::integer,
        spec.job_key,
        spec.priority::integer,
        spec.flags::text[],
        $10::text,
        false
    ) as done
),
announced as materialized (
    select pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":' || count(*)::text || '}')
    from added
    where added.is_new
    having count(*) > 0
)
select
:include unique_job_columns
from added
left join announced on true
order by added.place
