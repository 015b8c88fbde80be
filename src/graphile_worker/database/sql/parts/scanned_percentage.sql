  -- $2 pages of the table $1, as a percentage of it.
  least(
    100::double precision,
    100::double precision * $2::integer::double precision / greatest(
      pg_catalog.pg_relation_size($1::text::regclass) / pg_catalog.current_setting('block_size')::bigint, 1::bigint
    )::double precision
  )
