-- How long statements of this transaction wait for a lock at most. A shorter time that applies already is left as it is.
--
-- $1 text  lock_timeout
-- Returns what it was before.
with earlier as materialized (
  select setting, setting::interval as seconds
  from (select pg_catalog.current_setting('lock_timeout'::text) as setting) as current
)
select earlier.setting
from earlier
where pg_catalog.set_config(
  'lock_timeout'::text,
  case
    when earlier.seconds > interval '0' and earlier.seconds < $1::text::interval then earlier.setting else $1::text
  end,
  true
) is not null
