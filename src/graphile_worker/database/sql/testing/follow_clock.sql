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
