-- As matching_text, with the last error as in matching_redacted_error.
and (
    job.task_id = any(array(
        select named.id from :GRAPHILE_WORKER_SCHEMA._private_tasks as named
        where pg_catalog.strpos(lower(named.identifier), lower(:value::text)) > 0
    ))
    or pg_catalog.strpos(lower(job.key), lower(:value::text)) > 0
    or pg_catalog.strpos(lower(
:include redacted_error
    ), lower(:value::text)) > 0
)
