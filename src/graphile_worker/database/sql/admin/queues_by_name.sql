-- Queues whose names begin with a text, by name. Reads a bounded part of the index on names.
--
-- $1 text     the beginning
-- $2 text     those after this name, or null
-- $3 integer  how many names are read
-- Returns id, queue_name, and matches: whether the name begins with the text.
select id, queue_name, starts_with(queue_name, $1::text) as matches
from :GRAPHILE_WORKER_SCHEMA._private_job_queues
where queue_name >= $1::text and ($2::text is null or queue_name > $2::text)
order by queue_name
limit $3::integer
