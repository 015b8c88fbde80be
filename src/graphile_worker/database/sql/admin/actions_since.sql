-- What people did through the dashboard, its API and the command line, the latest first.
--
-- $1 timestamptz  since when
-- $2 integer      at most this many
-- Returns at, who, action, target, jobs.
select audit.at, audit.who, audit.action, audit.target, audit.jobs
from :GRAPHILE_WORKER_SCHEMA._private_py_audit as audit
where audit.at >= $1::timestamptz
order by audit.at desc
limit $2::integer
