-- Facts for the doctor.

-- statement: failures
-- Permanently failed jobs by task, for the doctor; the newest ones, through their index.
-- $1 how many jobs at most.
-- Returns task_identifier, jobs, and last_error of the one that failed last.
with failed as materialized (
    select job.task_id, left(job.last_error, 300) as last_error, standing.failed_at
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
:include back_off
:include standing
    where not job.is_available and job.locked_at is null
    order by job.id desc
    limit $1::integer
)
:include failures_by_task

-- statement: failures_in_part
-- Permanently failed jobs by task, in a sample of the table, for the doctor.
-- $1 the percentage of the table's pages to read; 100 counts all.
-- Returns task_identifier, jobs (as counted, not scaled up), and last_error of the one that failed last.
with failed as materialized (
    select job.task_id, left(job.last_error, 300) as last_error, standing.failed_at
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job tablesample system ($1::float4)
:include back_off
:include standing
    where not job.is_available and job.locked_at is null
)
:include failures_by_task

-- statement: functions
-- The functions of the schema, for the doctor.
-- $1 the schema's name (text).
-- Returns for each: name, owner, body, may_execute.
select
    proc.proname::text as name,
    pg_get_userbyid(proc.proowner)::text as owner,
    proc.prosrc as body,
    has_function_privilege(proc.oid, 'execute') as may_execute
from pg_catalog.pg_proc as proc
join pg_catalog.pg_namespace as namespace on namespace.oid = proc.pronamespace
where namespace.nspname = $1
order by proc.proname

-- statement: indexes
-- The indexes of the schema, for the doctor.
-- $1 the schema's name (text).
-- Returns for each: name, table_name, is_valid.
select
    class.relname::text as name,
    pg_index.indrelid::regclass::text as table_name,
    pg_index.indisvalid and pg_index.indisready as is_valid
from pg_catalog.pg_index
join pg_catalog.pg_class as class on class.oid = pg_index.indexrelid
join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
where namespace.nspname = $1
order by class.relname

-- statement: job_tasks
-- The tasks of these jobs, for the doctor.
-- $1 bigint[]  job ids
-- Returns id and task_identifier of those that exist.
select jobs.id, coalesce(tasks.identifier, '') as task_identifier
from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = jobs.task_id
where jobs.id = any ($1::bigint[])

-- statement: jobs_outside_limits
-- Jobs of limited tasks that run in pools which do not keep limits: those of Node and Rust. Scans the jobs table.
-- Returns for each limit, task and pool: limit_name, task_identifier, locked_by, jobs; a row of nulls for a limit without.
select limits.name as limit_name, found.task_identifier, found.locked_by, coalesce(found.jobs, 0) as jobs
from :GRAPHILE_WORKER_SCHEMA._private_py_limits as limits
left join lateral (
    select tasks.identifier as task_identifier, jobs.locked_by, count(*)::integer as jobs
    from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
    inner join :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs on jobs.task_id = tasks.id
    where tasks.identifier = any (limits.tasks) and jobs.locked_by is not null and not exists (
        select from :GRAPHILE_WORKER_SCHEMA._private_py_workers as workers where workers.id = jobs.locked_by
    )
    group by tasks.identifier, jobs.locked_by
) as found on true
order by limits.name, found.task_identifier, found.locked_by
limit 1000

-- statement: locks
-- Who has locked jobs and since when, for the doctor, where the table of workers is missing. Scans the jobs table.
-- Returns for each holder: locked_by, jobs, and age (seconds since its oldest lock was taken).
select
    jobs.locked_by,
    count(*) as jobs,
    date_part('epoch', now()) - date_part('epoch', min(jobs.locked_at)) as age
from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
where not jobs.is_available and jobs.locked_at is not null
group by jobs.locked_by
order by min(jobs.locked_at)
limit 1000

-- statement: lost_queues
-- Waiting jobs whose named queue has no row, for the doctor: a fetch locks the row of the queue, so they never run.
-- Skips from queue to queue in the index of waiting jobs of named queues (own_objects/job_indexes).
-- $1 how many queues to look at, or null for all.
-- Returns job_queue_id, and job_id and task_identifier of its next job; at most 100 rows.
with recursive waiting_queue (id, step) as (
    (
        select jobs.job_queue_id, 1 from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.is_available and jobs.job_queue_id is not null
        order by jobs.job_queue_id limit 1
    )
    union all
    select (
        select jobs.job_queue_id from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.is_available and jobs.job_queue_id is not null and jobs.job_queue_id > last.id
        order by jobs.job_queue_id limit 1
    ), last.step + 1
    from waiting_queue as last
    where last.id is not null and ($1::integer is null or last.step < $1::integer)
)
select
    waiting_queue.id as job_queue_id,
    next.id as job_id,
    coalesce(tasks.identifier, '') as task_identifier
from waiting_queue
cross join lateral (
    select jobs.id, jobs.task_id from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
    where jobs.is_available and jobs.job_queue_id = any (array[waiting_queue.id]) -- see write_outcomes
    order by jobs.job_queue_id, jobs.priority, jobs.run_at
    limit 1
) as next
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = next.task_id
where not exists (
    select from :GRAPHILE_WORKER_SCHEMA._private_job_queues as queues where queues.id = waiting_queue.id
)
order by waiting_queue.id
limit 100

-- statement: moment
-- The server's time and process, for the doctor.
-- Returns at (seconds since 1970 at this moment, not at the transaction's start) and pid.
select extract(epoch from clock_timestamp())::double precision as at, pg_backend_pid() as pid

-- statement: plain_plans
-- For the rest of the transaction: neither compile statements nor start processes for them. Both take longer than the
-- statement itself; the planner does not know that it leaves a large table alone.
select
    pg_catalog.set_config('jit', 'off', true),
    pg_catalog.set_config('max_parallel_workers_per_gather', '0', true)

-- statement: queues
-- Named queues that are locked although none of their jobs is, for the doctor: they stay locked until the lock is four
-- hours old. Scans the jobs table. One snapshot, so a queue that is just being freed does not appear. Paused queues do not
-- appear either, nor do those of held batches, none of whose jobs is locked for a moment.
-- Returns queue_name, locked_by, age (seconds since it was locked).
select
    queues.queue_name,
    queues.locked_by,
    date_part('epoch', now()) - date_part('epoch', queues.locked_at) as age
from :GRAPHILE_WORKER_SCHEMA._private_job_queues as queues
where queues.locked_at is not null and queues.locked_by is distinct from 'py:hold'
and not (
    queues.locked_at > now() - interval '5 seconds'
    and pg_catalog.split_part(queues.locked_by, '-'::text, 1::integer) in ('pool', 'otpool')
)
and not exists (
    select
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
    where not jobs.is_available and jobs.locked_at is not null and jobs.job_queue_id = queues.id
)
order by queues.locked_at
limit 1000

-- statement: rights
-- Permissions of the connected role on each table of the schema, for the doctor.
-- $1 the schema's name (text).
-- Returns for each table: name, owner, may_use (all four permissions), row_security (whether it hides rows from this
-- role), and in each row the permissions on the schema: may_enter (without it nothing else matters) and may_create.
select
    class.relname::text as name,
    pg_get_userbyid(class.relowner)::text as owner,
    has_schema_privilege(namespace.oid, 'usage') as may_enter,
    has_schema_privilege(namespace.oid, 'create') as may_create,
    has_table_privilege(class.oid, 'select')
        and has_table_privilege(class.oid, 'insert')
        and has_table_privilege(class.oid, 'update')
        and has_table_privilege(class.oid, 'delete') as may_use,
    row_security_active(class.oid) as row_security
from pg_catalog.pg_class as class
join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
where namespace.nspname = $1 and class.relkind in ('r', 'p')
order by class.relname

-- statement: sequences
-- Used share of the schema's identity columns, for the doctor.
-- $1 the schema's name (text).
-- Returns for each sequence: name, used (share of its values).
select sequencename::text as name, coalesce(last_value, 0)::double precision / max_value::double precision as used
from pg_catalog.pg_sequences
where schemaname = $1
order by sequencename

-- statement: server
-- The server and the session, for the doctor.
-- Returns one row: server_version (integer), version (text), role, database, is_superuser, is_standby, is_read_only,
-- isolation, idle_session_timeout (seconds, null before PostgreSQL 14), autovacuum, track_counts, fsync, full_page_writes,
-- connections (in use), max_connections, notification_queue (share that is full), schemas (text[], in the order of search_path).
select
    pg_catalog.current_setting('server_version_num')::integer as server_version,
    pg_catalog.current_setting('server_version') as version,
    current_user::text as role,
    current_database()::text as database,
    coalesce((select rolsuper from pg_catalog.pg_roles where rolname = current_user), false) as is_superuser,
    pg_is_in_recovery() as is_standby,
    pg_catalog.current_setting('default_transaction_read_only')::boolean as is_read_only,
    pg_catalog.current_setting('default_transaction_isolation') as isolation,
    (
        select extract(epoch from (setting || unit)::interval)::double precision
        from pg_catalog.pg_settings
        where name = 'idle_session_timeout'
    ) as idle_session_timeout,
    pg_catalog.current_setting('autovacuum')::boolean as autovacuum,
    pg_catalog.current_setting('track_counts')::boolean as track_counts,
    pg_catalog.current_setting('fsync')::boolean as fsync,
    pg_catalog.current_setting('full_page_writes')::boolean as full_page_writes,
    (select count(*)::integer from pg_catalog.pg_stat_activity where backend_type = 'client backend') as connections,
    pg_catalog.current_setting('max_connections')::integer as max_connections,
    pg_notification_queue_usage() as notification_queue,
    current_schemas(true)::text[] as schemas

-- statement: table
-- Size and maintenance of the jobs table, for the doctor. Reads statistics only.
-- $1 the table's name with its schema, quoted.
-- Returns one row: live and dead (rows, estimated), table_bytes, index_bytes, row_bytes (average width, null if never
-- analysed), changes (rows deleted or updated since statistics began), vacuumed_ago and analysed_ago (seconds, null if
-- never), settings (text[], of this table only).
select
    coalesce(stat.n_live_tup, 0)::bigint as live,
    coalesce(stat.n_dead_tup, 0)::bigint as dead,
    pg_catalog.pg_relation_size(class.oid) as table_bytes,
    pg_catalog.pg_indexes_size(class.oid) as index_bytes,
    (
        select sum(stats.avg_width)::integer
        from pg_catalog.pg_stats as stats
        where stats.schemaname = namespace.nspname and stats.tablename = class.relname
    ) as row_bytes,
    coalesce(stat.n_tup_del + stat.n_tup_upd, 0)::bigint as changes,
    extract(epoch from now() - greatest(stat.last_vacuum, stat.last_autovacuum))::double precision as vacuumed_ago,
    extract(epoch from now() - greatest(stat.last_analyze, stat.last_autoanalyze))::double precision as analysed_ago,
    coalesce(class.reloptions, '{}') as settings
from pg_catalog.pg_class as class
join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
left join pg_catalog.pg_stat_user_tables as stat on stat.relid = class.oid
where class.oid = $1::text::regclass::oid

-- statement: transactions
-- What keeps vacuum from removing dead rows of this database, for the doctor.
--
-- A session that is idle may be reading notifications: in a transaction of a moment, which seems to have begun with the
-- last statement, perhaps hours ago.
--
-- $1 minimum age in seconds.
-- Returns kind (session, prepared transaction or replication slot), name (process id, its name), what (whose, which
-- application, and its state) and age in seconds, null for slots.
select
    'session' as kind,
    pid::text as name,
    pg_catalog.concat_ws(', ', usename, nullif(application_name, ''), state) as what,
    extract(epoch from now() - xact_start)::double precision as age
from pg_catalog.pg_stat_activity
where datname = current_database()
and pid <> pg_backend_pid()
and xact_start < now() - $1::double precision * interval '1 second'
and (backend_xid is not null or backend_xmin is not null)
and state <> 'idle'
and backend_type = 'client backend'
union all
select 'prepared transaction', gid, owner::text, extract(epoch from now() - prepared)::double precision
from pg_catalog.pg_prepared_xacts
where database = current_database() and prepared < now() - $1::double precision * interval '1 second'
union all
select 'replication slot', slot_name::text, case when active then 'active' else 'not in use' end, null
from pg_catalog.pg_replication_slots
where xmin is not null and not active
order by age desc nulls last
limit 20

-- statement: past_work
-- Whether there were Python workers: last_work (seconds since one of them counted an attempt; null if none ever did), and
-- schedules (how many recurring jobs are known, of any runtime).
select
  date_part('epoch', now()) - date_part('epoch', greatest(
    (select max(minutes.minute) from :GRAPHILE_WORKER_SCHEMA._private_py_minutes as minutes),
    (select max(hours.hour) from :GRAPHILE_WORKER_SCHEMA._private_py_hours as hours)
  )) as last_work,
  (select count(*) from :GRAPHILE_WORKER_SCHEMA._private_known_crontabs as known) as schedules

-- part: failures_by_task
-- The jobs of `failed` by task.
select
    coalesce(tasks.identifier, '') as task_identifier,
    counted.jobs,
    counted.last_error
from (
    select
        failed.task_id,
        count(*) as jobs,
        (pg_catalog.array_agg(failed.last_error order by failed.failed_at desc))[1] as last_error
    from failed
    group by failed.task_id
) as counted
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = counted.task_id
order by counted.jobs desc, 1
