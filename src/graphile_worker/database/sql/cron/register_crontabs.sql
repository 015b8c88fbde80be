-- Register new recurring jobs; known ones stay as they are.
-- Parameters: $1 text[] identifiers, $2 timestamptz known_since.
-- Result: none.
insert into :GRAPHILE_WORKER_SCHEMA._private_known_crontabs (identifier, known_since)
select distinct identifier, $2::timestamptz
from pg_catalog.unnest($1::text[]) as new_items (identifier)
order by identifier -- the same order in every worker, so that two of them cannot deadlock
on conflict do nothing;
