-- End the pause of a recurring job.
--
-- $1 text  its identifier
-- Returns whether it was paused.
with resumed as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_schedule_pauses where identifier = $1::text
  returning until
)
select exists (select from resumed where until is null or until > now()) as was_paused
