-- Serialise Python processes that migrate the same schema; released when the transaction ends.
-- Parameters: $1 the schema's name (text).
select pg_advisory_xact_lock(1735686011, hashtext($1::text))
