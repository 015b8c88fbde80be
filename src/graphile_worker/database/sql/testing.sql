-- For test databases.

-- statement: adopt_jobs
-- Let jobs that were added "now" by the server's clock be due now by a test's clock, in the same order.
--
-- $1 timestamptz  the time of the test's clock
-- Returns how many there were.
--
-- A job without a time of its own is due when it was added, to the microsecond; so jobs that were given a time,
-- and those that were tried already, stay as they are.
with
added as (
  select id, run_at - max(run_at) over () as place
  from :GRAPHILE_WORKER_SCHEMA._private_jobs
  where locked_at is null and attempts = 0 and run_at in (created_at, updated_at)
),
adopted as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs job
  set run_at = $1::timestamptz + added.place
  from added
  where job.id = added.id
  returning 1
)
select count(*) from adopted

-- statement: create_database
-- Make a database as a copy of another one. Both names are written in as quoted identifiers, because this
-- statement takes no parameters.
create database :DATABASE template :TEMPLATE

-- statement: drop_database
-- Remove a database whose sessions were ended before. The name is written in as a quoted identifier.
drop database if exists :DATABASE

-- statement: drop_database_by_force
-- Remove a database and end its sessions (PostgreSQL 13 and later). The name is written in as a quoted identifier.
drop database if exists :DATABASE with (force)

-- statement: end_sessions
-- End every session of a database.
--
-- $1 text  the database's name
select pg_terminate_backend(pid) from pg_catalog.pg_stat_activity where datname = $1 and pid <> pg_backend_pid()

-- statement: follow_clock
-- Let the delay of failed and snoozed jobs go by a test's clock; without this it goes by the server's.
--
-- Several statements, for a test's database only. A trigger does it in the very moment when a job fails: a
-- correction afterwards would come too late for a worker that looks for its next job at once.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_testing_clock (
  only_one boolean primary key default true check (only_one),
  now timestamptz not null
);

create or replace function :GRAPHILE_WORKER_SCHEMA._private_py_testing_back_off() returns trigger
language plpgsql as $body$
begin
  new.run_at := greatest(
    (select clock.now from :GRAPHILE_WORKER_SCHEMA._private_py_testing_clock clock),
    old.run_at
  ) + (new.run_at - greatest(now(), old.run_at));
  return new;
end
$body$;

drop trigger if exists _private_py_testing_back_off on :GRAPHILE_WORKER_SCHEMA._private_jobs;

create trigger _private_py_testing_back_off
before update on :GRAPHILE_WORKER_SCHEMA._private_jobs
for each row
when (
  old.locked_at is not null
  and new.locked_at is null
  and new.run_at > old.run_at
)
execute function :GRAPHILE_WORKER_SCHEMA._private_py_testing_back_off();

-- statement: next_run_at
-- When the next job becomes due that is not due yet.
--
-- $1 text[]       identifiers of the tasks whose jobs count
-- $2 timestamptz  the time to go by
-- Returns one row; null if nothing waits.
select min(job.run_at)
from :GRAPHILE_WORKER_SCHEMA._private_jobs job
join :GRAPHILE_WORKER_SCHEMA._private_tasks task on task.id = job.task_id
where job.is_available and task.identifier = any ($1::text[]) and job.run_at > $2::timestamptz

-- statement: server_time
-- The server's clock.
select clock_timestamp()

-- statement: server_version
-- The server's version as its packager wrote it, such as `15.14 (Debian 15.14-0+deb12u1)`.
show server_version

-- statement: set_clock
-- Tell the database what a test's clock says.
--
-- $1 timestamptz  the time
insert into :GRAPHILE_WORKER_SCHEMA._private_py_testing_clock (now) values ($1)
on conflict (only_one) do update set now = excluded.now
