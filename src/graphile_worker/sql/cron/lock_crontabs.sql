-- Take the rows of recurring jobs before the jobs of several minutes are added in one transaction. Always in
-- the same order, so that workers that are about to add the same jobs wait for each other and never in a ring.
-- Parameters: $1 text[] identifiers.
-- Result: one row for each that is known.
select identifier
from :GRAPHILE_WORKER_SCHEMA._private_known_crontabs as known_crontabs
where identifier = any($1::text[])
order by identifier
for update;
