cross join (
  select null::text as state, null::text as error, null::timestamptz as finished_at, null::double precision as duration
) last_finished
