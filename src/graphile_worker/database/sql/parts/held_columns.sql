  -- The columns of `taken_columns` for a job that is held, as if it were locked. Held jobs have no key: in its place is
  -- where the first job with a key comes, or null, so that nothing more has to be sent and read for each job.
  found.id, found.payload::text, found.priority, date_part('epoch', found.run_at), found.attempts + 1, found.max_attempts,
  found.last_error, date_part('epoch', nullif(found.created_at, found.run_at)),
  date_part('epoch', nullif(found.updated_at, found.created_at)),
  (select place from first_keyed), date_part('epoch', coalesce($4::timestamptz, now())), found.revision, found.flags::text, found.task_id,
  found.job_queue_id
