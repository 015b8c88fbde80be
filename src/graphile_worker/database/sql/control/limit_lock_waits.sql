-- How long statements of this transaction wait for a lock.
--
-- $1 text  lock_timeout
-- Returns what it was before.
with earlier as materialized (select pg_catalog.current_setting('lock_timeout'::text) as lock_timeout)
select earlier.lock_timeout
from earlier
where pg_catalog.set_config('lock_timeout'::text, $1::text, true) is not null
