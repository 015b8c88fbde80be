-- Rows of the audit, the latest first.
-- $1 who or null, $2 action or null, $3 and $4 the times from and before, or null, $5 the id before which to start, or
-- null, $6 how many.
select
:include audit_columns
where ($1::text is null or audit.who = $1::text)
and ($2::text is null or audit.action = $2::text)
and ($3::timestamptz is null or audit.at >= $3::timestamptz)
and ($4::timestamptz is null or audit.at < $4::timestamptz)
and audit.id < coalesce($5::bigint, 9223372036854775807)
order by audit.id desc
limit $6::integer
