-- Used share of the schema's identity columns, for the doctor.
-- $1 the schema's name (text).
-- Returns for each sequence: name, used (share of its values).
select sequencename::text as name, coalesce(last_value, 0)::double precision / max_value::double precision as used
from pg_catalog.pg_sequences
where schemaname = $1
order by sequencename
