-- Jobs and queues, for clients.

-- statement: count_jobs
-- Jobs by task and state, in a sample of the table.
-- $1 the percentage of the table's pages to read; 100 counts all.
-- Returns task_identifier, state and jobs (as counted, not extrapolated).
select
    coalesce(tasks.identifier, '') as task_identifier,
    counted.state,
    counted.jobs
from (
    select
        job.task_id,
        standing.state,
        count(*) as jobs
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job tablesample system ($1::float4)
:include back_off
:include standing
    group by 1, 2
) as counted
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = counted.task_id
order by 1, 2

-- statement: count_queues
-- The number of named queues.
-- Returns queues and locked (those that a worker has locked; a paused one does not count).
select count(*) as queues, count(*) filter (where job_queues.locked_by <> 'py:hold') as locked
from :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
where job_queues.queue_name !~ ' \[[1-9][0-9]*\]$' -- tracks of wide queues

-- statement: get_job_by_id
-- One job.
-- $1 its id.
-- Returns the jobs' columns in the order of Job, then queue name, state and time of the failure.
:include job_details
where job.id = $1::bigint

-- statement: jobs_table_size
-- The size of the jobs table, to decide whether to count or to estimate.
-- $1 the table's name with its schema, quoted.
-- Returns the number of its pages.
select pg_catalog.pg_relation_size($1::text::regclass) / pg_catalog.current_setting('block_size')::bigint as pages

-- statement: last_work
-- When Python workers last counted an attempt: to the minute, or to the hour if it is long ago; null if none ever did.
select greatest(
    (select max(minutes.minute) from :GRAPHILE_WORKER_SCHEMA._private_py_minutes as minutes),
    (select max(hours.hour) from :GRAPHILE_WORKER_SCHEMA._private_py_hours as hours)
)

-- statement: list_jobs_in_run_order @ready @scheduled @keyed
-- Ready and scheduled jobs in the order in which workers take them; uses the index of the fetch.
-- $1 how many at most, $2 to $26 those of parts/matching_jobs,
-- $27, $28, $29 priority, run_at (seconds since 1970) and id of the last job of the previous page, or less than any.
-- The variants are for one state, or for a job key.
-- Returns the jobs' columns in the order of Job, then queue name, state and time of the failure.
:include job_details
where job.is_available = true
and (job.priority, job.run_at, job.id) > ($27::integer, to_timestamp($28::float8), $29::bigint)
:include matching_jobs
:include served
order by job.priority, job.run_at, job.id
limit $1::integer

-- statement: list_jobs_in_run_order_before_13 @ready @scheduled @keyed
-- list_jobs_in_run_order for a server without incremental sorts. Jobs are read as the index of the fetch has them, in
-- groups of one priority and run_at; each group is sorted by id, and the limit ends the reading. Then the jobs are read
-- by their ids.
-- Parameters and variants are those of list_jobs_in_run_order.
:include job_details
where job.id = any(array(
    select same.id
    from (
        select job.priority, job.run_at, pg_catalog.array_agg(job.id order by job.id) as ids
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
:include back_off
:include standing
        where job.is_available = true
        and (job.priority, job.run_at, job.id) > ($27::integer, to_timestamp($28::float8), $29::bigint)
:include matching_jobs
:include served
        group by job.priority, job.run_at
        order by job.priority, job.run_at
        limit $1::integer
    ) as instant
    cross join lateral pg_catalog.unnest(instant.ids) as same (id)
    order by instant.priority, instant.run_at
    limit $1::integer
))
order by job.priority, job.run_at, job.id

-- statement: list_jobs_newest_first @ready @scheduled @running @failed @keyed
-- Jobs by descending id.
-- $1 how many at most, $2 to $26 those of parts/matching_jobs,
-- $27 the id after which to start.
-- The variants are for one state, or for a job key.
-- Returns the jobs' columns in the order of Job, then queue name, state and time of the failure.
:include job_details
where job.id < $27::bigint
:include matching_jobs
:include served
order by job.id desc
limit $1::integer

-- statement: list_jobs_oldest_first @ready @scheduled @running @failed @keyed
-- Jobs by ascending id.
-- Parameters, variants and result are those of list_jobs_newest_first.
:include job_details
where job.id > $27::bigint
:include matching_jobs
:include served
order by job.id
limit $1::integer

-- statement: list_queues
-- Named queues, the longest first. A wide queue is one, with the jobs in its tracks.
-- $1 the percentage of the jobs table's pages to read (100 counts all), $2 how many queues at most.
-- Returns queue_name, locked_by, locked_at (seconds since 1970), jobs and ready (as counted, not extrapolated), concurrency.
with queue as (
    select
        job_queues.id,
        job_queues.queue_name,
        pg_catalog.regexp_replace(job_queues.queue_name, ' \[[1-9][0-9]*\]$', '') as home,
        job_queues.locked_by,
        job_queues.locked_at
    from :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
)
select
    queue.home as queue_name,
    (pg_catalog.array_agg(queue.locked_by order by queue.queue_name = queue.home desc, queue.locked_by))[1] as locked_by,
    date_part(
        'epoch',
        (pg_catalog.array_agg(queue.locked_at order by queue.queue_name = queue.home desc, queue.locked_by))[1]
    ) as locked_at,
    coalesce(sum(counted.jobs), 0)::bigint as jobs,
    coalesce(sum(counted.ready), 0)::bigint as ready,
    case -- a track that is closed is locked although its queue is not
        when bool_and(queue.locked_by is not distinct from 'py:hold') then count(*)
        else count(*) filter (where queue.locked_by is distinct from 'py:hold')
    end as concurrency
from queue
left join (
    select
        jobs.job_queue_id,
        count(*) as jobs,
        count(*) filter (where jobs.is_available and jobs.run_at <= now()) as ready
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs tablesample system ($1::float4)
    where jobs.job_queue_id is not null
    group by jobs.job_queue_id
) as counted on counted.job_queue_id = queue.id
group by queue.home
order by coalesce(sum(counted.jobs), 0) desc, queue.home
limit $2::integer

-- statement: oldest_ready_job
-- The run_at of the job that has been ready the longest. Reads the first job of each priority (at most 100) from the
-- index of the fetch, so it touches few rows, however many jobs there are.
-- Returns its run_at in seconds since 1970, null when no job is ready.
with recursive
beginning (priority) as (select (-32768)::smallint),
:include first_of_priority
select date_part('epoch', min(first_of_priority.run_at)) as run_at
from first_of_priority
where first_of_priority.run_at <= now()

-- part: job_details
-- A job with the names of its task and its queue, its state, and when it failed permanently.
select
:include job_columns
    , coalesce(tasks.identifier, '') as task_identifier,
    pg_catalog.regexp_replace(job_queues.queue_name, ' \[[1-9][0-9]*\]$', '') as queue_name,
    standing.state,
    standing.failed_at
from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = job.task_id
left join :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues on job_queues.id = job.job_queue_id
:include back_off
:include standing
