-- Operations, the latest first.
-- $1 the id before which to start, or null, $2 how many.
select
:include operation_columns
where operation.id < coalesce($1::bigint, 9223372036854775807)
order by operation.id desc
limit $2::integer
