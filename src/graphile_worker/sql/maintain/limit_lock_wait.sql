-- Set how long to wait for locks until the transaction ends.
-- $1 the value of lock_timeout.
-- Returns the value that it had.
with before as materialized (
    select current_setting('lock_timeout') as setting
)
select before.setting, pg_catalog.set_config('lock_timeout', $1::text, true)
from before
