-- Set lock_timeout for the rest of the transaction.
-- $1 the value of lock_timeout.
-- Returns the previous value.
with before as materialized (
    select pg_catalog.current_setting('lock_timeout') as setting
)
select before.setting, pg_catalog.set_config('lock_timeout', $1::text, true)
from before
