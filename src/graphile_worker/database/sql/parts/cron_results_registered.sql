-- End of the statements that add the recurring jobs of one minute: the runs are noted for those who look.
, noted as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_schedule_runs as run (identifier, job_ids, due_at)
  select added.identifier, array[max(added.job_id)], array[$1::timestamptz]
  from added
  where added.job_id is not null
  group by added.identifier
  order by added.identifier -- the same order in every worker, so that two of them cannot deadlock
  on conflict (identifier) do update set
    job_ids = (pg_catalog.array_cat(excluded.job_ids, run.job_ids))[1:20],
    due_at = (pg_catalog.array_cat(excluded.due_at, run.due_at))[1:20]
)
select added.identifier, added.job_id from added order by added.position
