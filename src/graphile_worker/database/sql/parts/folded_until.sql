-- The end of the last day that is folded; the statistics of later ones are in the hours.
folded as (
  select coalesce(max(days.day) + '24:00:00'::interval, '-infinity'::timestamptz) as until
  from :GRAPHILE_WORKER_SCHEMA._private_py_days as days
)
