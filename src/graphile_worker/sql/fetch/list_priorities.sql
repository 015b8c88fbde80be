-- The distinct priorities of waiting jobs without a queue, in ascending order, by one index probe each.
--
-- $1 integer  limit
-- Returns priority, and the server's time in seconds since 1970; one row with a null priority if there is no such job.
with recursive
:include plain_priority
,
listed as materialized (select priority from plain_priority where priority is not null limit $1::integer)
select listed.priority, date_part('epoch', now()) as now
from (select) as always left join listed on true
