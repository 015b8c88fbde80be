-- The text is a part of the task identifier, of the job key or of the last error.
and (
    job.task_id = any(array(
        select named.id from :GRAPHILE_WORKER_SCHEMA._private_tasks as named
        where pg_catalog.strpos(lower(named.identifier), lower(:value::text)) > 0
    ))
    or pg_catalog.strpos(lower(job.key), lower(:value::text)) > 0
    or pg_catalog.strpos(lower(job.last_error), lower(:value::text)) > 0
)
