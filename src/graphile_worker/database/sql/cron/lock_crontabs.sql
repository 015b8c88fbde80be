-- Lock the rows of recurring jobs before the jobs of several minutes are added in one transaction. The order is
-- always the same, so that workers that add the same jobs wait for each other and do not deadlock.
-- Parameters: $1 text[] identifiers.
-- Result: one row per known item.
select identifier
from :GRAPHILE_WORKER_SCHEMA._private_known_crontabs as known_crontabs
where identifier = any($1::text[])
order by identifier
for update;
