-- Note down recurring jobs that are new; what is known already stays as it is.
-- Parameters: $1 text[] identifiers, $2 timestamptz the moment from which they count as known.
-- Result: none.
insert into :GRAPHILE_WORKER_SCHEMA._private_known_crontabs (identifier, known_since)
select distinct identifier, $2::timestamptz
from pg_catalog.unnest($1::text[]) as new_items (identifier)
order by identifier -- two workers that start together take the rows in the same order: no deadlock
on conflict do nothing;
