-- The distinct priorities of waiting jobs without a queue, in ascending order, by one index probe each.
--
-- Returns priority, and the server's time in seconds since 1970; the priority is null in a row of its own if
-- there is no such job.
with recursive
:include plain_priority
select waiting.priority, date_part('epoch', now()) as now
from (select) as always left join plain_priority waiting on true
where waiting.priority is not null or not exists (select from plain_priority where priority is not null)
