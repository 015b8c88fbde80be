-- Part of every fetch of a held batch, like `terms`.
task (ids) as materialized (select $2::text::integer[]),
term (flags, moment) as materialized (select $3::text[], coalesce($4::timestamptz, statement_timestamp())),
-- A snapshot lists no transaction with an id above the highest one that has ended, and those have the latest batches. So the
-- next 32 ids count as running too. Only here: in the transaction of a caller one of them could be our own.
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid
    from (
      select txid_snapshot_xip(snapshot)
      from txid_current_snapshot() as snapshot
      union all
      select generate_series(txid_snapshot_xmax(snapshot), txid_snapshot_xmax(snapshot) + 31::bigint)
      from txid_current_snapshot() as snapshot
    ) as running (number)
  )
),
