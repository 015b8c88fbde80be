-- One operation.
-- $1 id.
select
:include operation_columns
where operation.id = $1::bigint
