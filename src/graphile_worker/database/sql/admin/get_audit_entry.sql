-- One row of the audit.
-- $1 id.
select
:include audit_columns
where audit.id = $1::bigint
