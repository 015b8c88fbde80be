-- Do not show an error group until it occurs in another version, or until a time.
-- $1 fingerprint, $2 version or null, $3 until or null, $4 who, $5 reason.
insert into :GRAPHILE_WORKER_SCHEMA._private_py_muted_errors as muted (fingerprint, version, until, who, reason)
values ($1::text, $2::text, $3::timestamptz, $4::text, $5::text)
on conflict (fingerprint) do update
set version = excluded.version, until = excluded.until, who = excluded.who, reason = excluded.reason, at = now()
