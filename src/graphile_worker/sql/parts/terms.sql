-- Part of every fetch: what it may take, and what it need not try for.
-- One text such as {1,2}: the driver takes ten times as long to send an array of ten thousand numbers.
task (ids) as materialized (select $2::text::integer[]),
-- Other fetches that are under way. Rows that they have locked are passed by when their header shows it: to try for the
-- lock, as `skip locked` does, takes five times as long, and there are thousands of them.
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid from txid_snapshot_xip(txid_current_snapshot()) as number
  )
),
