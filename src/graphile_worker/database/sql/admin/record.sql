-- Add a row to the audit.
-- $1 who, $2 how they signed in, $3 from where, $4 action, $5 target, $6 how many jobs, $7 ids of jobs, $8 details as JSON
-- text, $9 id of the operation or null.
-- Returns the row's id.
insert into :GRAPHILE_WORKER_SCHEMA._private_py_audit
    (who, how, origin, action, target, jobs, job_ids, details, operation_id)
values ($1::text, $2::text, $3::text, $4::text, $5::text, $6::bigint, $7::bigint[], $8::text::json, $9::bigint)
returning id
