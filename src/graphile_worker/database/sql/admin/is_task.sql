-- Whether jobs of this task were ever added.
--
-- $1 text  task identifier
select exists (
  select from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks where tasks.identifier = $1::text
)
