-- What this schema has for counting the jobs of queues, as far as this role may use it.
--
-- $1 text  name of the schema
-- Returns has_index (own_objects/0002_queue_indexes) and has_tracks (own_objects/0015_tracks).
select
  to_regclass(pg_catalog.format('%I._private_py_jobs_queue_next_index', $1::text)) is not null as has_index,
  coalesce(
    has_table_privilege(to_regclass(pg_catalog.format('%I._private_py_tracks', $1::text))::oid, 'select'::text), false
  ) as has_tracks
