-- $4: seconds of a step, or null for one step; $5: by task.
select
  case
    when $4::double precision is not null
      then floor(date_part('epoch', counted.at) / $4::double precision) * $4::double precision
  end as start,
  case when $5::boolean then counted.task end as task,
  null::text as pool_id,
:include summed_statistics
from counted
group by 1, 2
order by 1, 2
