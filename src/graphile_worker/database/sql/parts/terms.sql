-- Part of every fetch: the tasks that it may take, and the transactions whose locked rows it skips.
-- The ids are one text such as {1,2}: the driver needs ten times as long to send an array of ten thousand numbers.
task (ids) as materialized (select $2::text::integer[]),
-- Other fetches in flight. Rows that they have locked are skipped by their header: trying the lock, as `skip locked`
-- does, takes five times as long, and there are thousands of them.
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid from txid_snapshot_xip(txid_current_snapshot()) as number
  )
),
