        select named.id::bigint from pg_catalog.unnest($1::text[]) as named (id)
        union all
        select keyed.id from :GRAPHILE_WORKER_SCHEMA._private_jobs as keyed where keyed.key = $2::text
