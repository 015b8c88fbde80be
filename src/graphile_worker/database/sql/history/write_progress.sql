-- Store the progress of running jobs, and delete that of jobs that no longer run.
--
-- $1 bigint[]  ids of running jobs
-- $2 float8[]  their shares, or null
-- $3 text[]    their notes, or null
-- $4 text[]    their data (JSON text), or null
-- $5 bigint[]  ids of jobs that no longer run
with ended as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_progress where job_id = any ($5::bigint[])
)
insert into :GRAPHILE_WORKER_SCHEMA._private_py_progress (job_id, share, note, data, updated_at)
select job_id, share, note, data::json, now()
from unnest($1::bigint[], $2::double precision[], $3::text[], $4::text[]) as report (job_id, share, note, data)
order by job_id
on conflict (job_id) do update
set share = excluded.share, note = excluded.note, data = excluded.data, updated_at = excluded.updated_at
