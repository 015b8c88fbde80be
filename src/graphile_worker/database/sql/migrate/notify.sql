-- Notify running workers of an applied revision.
-- Parameters: $1 the JSON text (text).
select pg_notify('worker:migrate', $1::text)
