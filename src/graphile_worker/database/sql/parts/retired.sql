  -- Whether a locked `job` is obsolete, because its key was removed or reused. As cut_off, but without
  -- jobs that were given up by hand, which is possible four hours after the lock, and without batches: the items of one
  -- whose key was used again are in no other job, if the functions are Node's.
  (
    job.key is null and job.attempts >= job.max_attempts and job.updated_at > job.locked_at
    and job.updated_at > job.created_at and job.updated_at < job.locked_at + interval '4 hours'
    and json_typeof(job.payload) <> 'array'
  )
