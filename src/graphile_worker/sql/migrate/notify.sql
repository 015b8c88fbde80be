-- Tell running workers which revision was applied.
-- Parameters: $1 the JSON text (text).
select pg_notify('worker:migrate', $1)
