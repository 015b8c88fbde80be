-- Operations that have not ended.
select
:include operation_columns
where operation.finished_at is null
order by operation.id
limit 100
