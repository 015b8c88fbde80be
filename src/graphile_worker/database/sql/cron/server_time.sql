-- The server's time, and recurring jobs that a wrong clock has added for a time in the future.
-- Parameters: $1 text[] identifiers, $2 interval how far ahead of the server a minute may be.
-- Result: one row with now, and one for each such item: identifier, last_execution.
select clock_timestamp() as now, known_crontabs.identifier, known_crontabs.last_execution
from (select) as always
left join :GRAPHILE_WORKER_SCHEMA._private_known_crontabs as known_crontabs
  on known_crontabs.identifier = any($1::text[]) and known_crontabs.last_execution > clock_timestamp() + $2::interval
order by known_crontabs.identifier;
