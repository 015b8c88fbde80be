-- Settings for a connection that only fetches jobs and writes outcomes; they last as long as the session.
--
-- The statements are written for one plan: index scans in order, nested loops, rows by place. Estimates go
-- wrong on a table that empties and fills all the time, and one bad guess reads a million rows. A generic plan
-- is made once; planning anew would cost more than running.
select
  set_config('enable_seqscan', 'off', false),
  set_config('enable_bitmapscan', 'off', false),
  set_config('enable_hashjoin', 'off', false),
  set_config('enable_mergejoin', 'off', false),
  set_config('enable_sort', 'off', false), -- where an index has the order; elsewhere they still sort
  case -- not before PostgreSQL 13
    when current_setting('enable_incremental_sort', true) is not null
      then set_config('enable_incremental_sort', 'off', false)
  end,
  set_config('jit', 'off', false),
  set_config('plan_cache_mode', 'force_generic_plan', false)
