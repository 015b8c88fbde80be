-- Show an error group again.
-- $1 fingerprint.
delete from :GRAPHILE_WORKER_SCHEMA._private_py_muted_errors as muted
where muted.fingerprint = $1::text
returning muted.fingerprint
