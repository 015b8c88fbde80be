-- What the database knows about recurring jobs.
-- Parameters: none.
-- Result: identifier, known_since, last_execution; one row per item that any worker ever had.
select identifier, known_since, last_execution
from :GRAPHILE_WORKER_SCHEMA._private_known_crontabs as known_crontabs;
