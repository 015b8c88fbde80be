-- Give queues as many tracks as their widths ask for; see own_objects/0015_tracks.
-- $1 integer[]  ids of queues or of their tracks
-- $2 integer[]  widths, null to leave one as it is; those that were set by hand count first
-- Returns how many tracks were made and closed.
select :GRAPHILE_WORKER_SCHEMA._private_py_set_tracks($1::integer[], $2::integer[])
