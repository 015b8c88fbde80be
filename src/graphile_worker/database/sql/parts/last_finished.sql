left join lateral (
  select state, error, finished_at, duration
  from :GRAPHILE_WORKER_SCHEMA._private_py_history
  where job_id = wanted.job_id and job.id is null
  order by date_part('epoch', finished_at) desc -- not the column, whose index would be read to its end
  limit 1
) last_finished on true
