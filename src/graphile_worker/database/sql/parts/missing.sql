-- The answer of the statements that only delete: no row if `completed` has all of $2, else one with the missing ids.
select array(select pg_catalog.unnest($2::bigint[]) except select id from completed) as missing
where (select count(*) from completed) < pg_catalog.cardinality($2::bigint[])
