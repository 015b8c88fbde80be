-- The distinct priorities of waiting jobs without a queue, in ascending order, by one index probe each.
--
-- $1 integer  how many at most
-- Returns priority, and the server's time in seconds since 1970; the priority is null in a row of its own if
-- there is no such job.
with recursive
:include plain_priority
,
listed as materialized (select priority from plain_priority where priority is not null limit $1::integer)
select listed.priority, date_part('epoch', now()) as now
from (select) as always left join listed on true
